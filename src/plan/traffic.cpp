// SPDX-License-Identifier: Apache-2.0
#include "plan/traffic.hpp"

#include <algorithm>
#include <cmath>

#include "core/checked.hpp"

namespace winnow {
namespace {

struct Cost {
  double bytes = 0, operations = 0;
};

double share_of_experts(const ModelConfig& config, double tokens) {
  if (config.experts == 0) return 0;
  const double idle = 1.0 - static_cast<double>(config.experts_used) / static_cast<double>(config.experts);
  return 1.0 - std::pow(idle, tokens);
}

bool indexed(const TrafficInputs& in) { return in.config->has_indexer() && !in.dense; }

// Rows that one token reads when `visible` positions stand before it, itself included.
double rows_read(const TrafficInputs& in, double visible) {
  return indexed(in) ? std::min(visible, static_cast<double>(in.config->index_topk)) : visible;
}

// Positions that one token scores: none while everything is selected.
double keys_scored(const TrafficInputs& in, double visible) {
  return indexed(in) && visible > static_cast<double>(in.config->index_topk) ? visible : 0;
}

// Operations of one token in all layers, without the head.
double layer_operations(const TrafficInputs& in, double rows, double keys) {
  const ModelConfig& c = *in.config;
  const double used = c.experts > 0 ? static_cast<double>(c.experts_used) / static_cast<double>(c.experts) : 0;
  const double weights = 2 * (in.weights.dense_elements + in.weights.expert_elements * used);
  const auto width = static_cast<double>(c.kv_lora + c.head_rope + c.kv_lora);  // d_qk + d_v
  const double attention = 2 * static_cast<double>(c.layers * c.heads) * rows * width;
  const double scores = 2 * static_cast<double>(c.full_layers() * c.index_heads * c.index_dim) * keys;
  return weights + attention + scores;
}

double head_operations(const TrafficInputs& in) { return 2 * in.weights.head_elements; }

Speed speed_of(const Cost& cost, const DeviceInfo& device, double tokens) {
  Speed speed;
  const double memory = device.bandwidth > 0 ? cost.bytes / device.bandwidth : 0;
  const double arithmetic = device.matrix_flops > 0 ? cost.operations / device.matrix_flops : 0;
  const double seconds = std::max(memory, arithmetic);
  speed.bound = memory >= arithmetic ? "memory" : "arithmetic";
  speed.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
  speed.bytes = cost.bytes;
  speed.operations = cost.operations;
  return speed;
}

// Sum of min(i, cap) for i in 1 .. n.
double sum_of_minima(double n, double cap) {
  if (n <= cap) return n * (n + 1) / 2;
  return cap * (cap + 1) / 2 + (n - cap) * cap;
}

// Sum of i for i in (from, n].
double sum_above(double n, double from) { return n <= from ? 0 : (n * (n + 1) - from * (from + 1)) / 2; }

}  // namespace

int64_t active_weight_bytes(const TrafficInputs& in) {
  const double experts = static_cast<double>(in.weights.expert_bytes) * share_of_experts(*in.config, 1);
  return in.weights.dense_bytes + in.weights.head_read_bytes + static_cast<int64_t>(std::llround(experts));
}

Speed decode_speed(const TrafficInputs& in, const DeviceInfo& device, int64_t sequences, int64_t visible) {
  const auto n = static_cast<double>(sequences);
  const double rows = rows_read(in, static_cast<double>(visible)), keys = keys_scored(in, static_cast<double>(visible));
  Cost cost;
  cost.bytes =
      static_cast<double>(in.weights.dense_bytes + in.weights.head_read_bytes) +
      static_cast<double>(in.weights.expert_bytes) * share_of_experts(*in.config, n) +
      n * (rows * static_cast<double>(in.latent_bytes_per_token) + keys * static_cast<double>(in.key_bytes_per_token));
  cost.operations = n * (layer_operations(in, rows, keys) + head_operations(in));
  return speed_of(cost, device, n);
}

Speed prefill_speed(const TrafficInputs& in, const DeviceInfo& device, int64_t prompt, int64_t step_tokens) {
  const auto tokens = static_cast<double>(prompt);
  const auto steps = ceil_div(prompt, step_tokens);
  Cost cost;
  for (int64_t step = 0; step < steps; ++step) {
    const auto end = static_cast<double>(std::min(prompt, (step + 1) * step_tokens));
    const double in_step = end - static_cast<double>(step * step_tokens);
    cost.bytes += static_cast<double>(in.weights.dense_bytes) +
                  static_cast<double>(in.weights.expert_bytes) * share_of_experts(*in.config, in_step) +
                  end * static_cast<double>(in.latent_bytes_per_token) +
                  keys_scored(in, end) * static_cast<double>(in.key_bytes_per_token);
  }
  cost.bytes += static_cast<double>(in.weights.head_read_bytes);
  const double topk = indexed(in) ? static_cast<double>(in.config->index_topk) : tokens;
  const double rows = sum_of_minima(tokens, topk);
  const double keys = indexed(in) ? sum_above(tokens, topk) : 0;
  // layer_operations is linear in rows and keys: weights count once for each token.
  cost.operations = layer_operations(in, rows, keys) + (tokens - 1) * layer_operations(in, 0, 0) + head_operations(in);
  return speed_of(cost, device, tokens);
}

}  // namespace winnow
