// SPDX-License-Identifier: Apache-2.0
#include "models/config.hpp"

#include <algorithm>
#include <cmath>

#include "models/config_sources.hpp"

namespace winnow {

int64_t ModelConfig::full_layers() const { return std::count(full_indexer.begin(), full_indexer.end(), true); }

float ModelConfig::softmax_scale() const {
  double scale = 1.0 / std::sqrt(static_cast<double>(head_nope + head_rope));
  if (yarn.enabled && yarn.mscale_all_dim != 0) {
    const double m = 0.1 * yarn.mscale_all_dim * std::log(static_cast<double>(yarn.factor)) + 1.0;
    scale *= m * m;
  }
  return static_cast<float>(scale);
}

Status check_index_share(int64_t frequency, int64_t offset) {
  constexpr int64_t kMost = 4096;  // layers: larger numbers mean nothing, and must not overflow the formula
  if (frequency >= 1 && frequency <= kMost && offset >= -kMost && offset <= kMost) return {};
  return error(StatusCode::corrupt_data, "layers share selections with frequency ", frequency, " and offset ", offset,
               ", wants a frequency from 1 to ", kMost, " and an offset from ", -kMost, " to ", kMost);
}

std::vector<bool> index_share_formula(int64_t layers, int64_t frequency, int64_t offset) {
  std::vector<bool> full(static_cast<std::size_t>(layers));
  for (int64_t i = 0; i < layers; ++i) full[i] = std::max<int64_t>(i - offset + 1, 0) % frequency == 0;
  return full;
}

namespace {

struct Range {
  const char* what;
  int64_t value, low, high;
};

// Limits are an order of magnitude beyond any published model: they keep products of sizes inside int64_t.
Status check_ranges(const ModelConfig& c) {
  const Range ranges[] = {
      {"vocabulary", c.vocab, 1, 1 << 24},
      {"hidden size", c.hidden, 1, 1 << 18},
      {"layers", c.layers, 1, 1 << 12},
      {"MTP layers", c.nextn_layers, 0, 1 << 8},
      {"attention heads", c.heads, 1, 1 << 12},
      {"q_lora_rank", c.q_lora, 0, 1 << 18},
      {"kv_lora_rank", c.kv_lora, 1, 1 << 16},
      {"nope dimensions of a head", c.head_nope, 1, 1 << 14},
      {"rope dimensions of a head", c.head_rope, 0, 1 << 14},
      {"value dimensions of a head", c.head_v, 1, 1 << 14},
      {"leading dense layers", c.dense_layers, 0, c.layers},
      {"width of dense layers", c.dense_width, c.dense_layers > 0 ? 1 : 0, 1 << 20},
      {"experts", c.experts, c.dense_layers < c.layers ? 1 : 0, 1 << 16},
      {"experts used", c.experts_used, c.experts > 0 ? 1 : 0, c.experts},
      {"shared experts", c.shared_experts, 0, 1 << 8},
      {"width of experts", c.expert_width, c.experts > 0 ? 1 : 0, 1 << 20},
      {"expert groups", c.expert_groups, 1, std::max<int64_t>(c.experts, 1)},
      {"expert groups used", c.expert_groups_used, 1, c.expert_groups},
      {"indexer heads", c.index_heads, 0, 1 << 10},
      {"index_topk", c.index_topk, c.has_indexer() ? 1 : 0, 1 << 24},
      {"indexer key dimensions", c.index_dim, c.has_indexer() ? std::max<int64_t>(c.head_rope, 1) : 0, 1 << 14},
      {"context", c.context, 1, int64_t{1} << 31},
  };
  for (const Range& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;
    return error(StatusCode::corrupt_data, c.architecture, ": ", r.what, " is ", r.value, ", wants ", r.low, " to ",
                 r.high);
  }
  return Status();
}

Status check_yarn(const ModelConfig& c) {
  if (!c.yarn.enabled) return {};
  const YarnScaling& y = c.yarn;
  if (!(std::isfinite(y.factor) && y.factor > 1 && y.original_context > 0)) {
    return error(StatusCode::corrupt_data, c.architecture, ": YaRN factor ", y.factor, " over ", y.original_context,
                 " positions, wants a finite factor above 1 and a context above 0");
  }
  const bool betas = std::isfinite(y.beta_fast) && y.beta_fast > 0 && std::isfinite(y.beta_slow) && y.beta_slow > 0;
  if (betas && std::isfinite(y.mscale_all_dim) && std::isfinite(y.attention_factor)) return {};
  return error(StatusCode::corrupt_data, c.architecture, ": YaRN beta_fast ", y.beta_fast, ", beta_slow ", y.beta_slow,
               ", mscale_all_dim ", y.mscale_all_dim, ", attention factor ", y.attention_factor,
               ": wants finite numbers and betas above 0");
}

Status check_relations(const ModelConfig& c) {
  if (c.head_rope % 2 != 0) {
    return error(StatusCode::corrupt_data, c.architecture, ": rope dimensions are ", c.head_rope,
                 ", wants an even number");
  }
  if (c.experts > 0 && c.experts % c.expert_groups != 0) {
    return error(StatusCode::corrupt_data, c.architecture, ": ", c.experts, " experts do not divide into ",
                 c.expert_groups, " groups");
  }
  const int64_t reachable = c.experts > 0 ? c.experts / c.expert_groups * c.expert_groups_used : 0;
  if (c.experts_used > reachable) {
    return error(StatusCode::corrupt_data, c.architecture, ": ", c.experts_used, " experts per token, but the ",
                 c.expert_groups_used, " groups in use hold ", reachable);
  }
  const bool norm = std::isfinite(c.norm_eps) && c.norm_eps >= 0;
  const bool theta = std::isfinite(static_cast<float>(c.rope_theta)) && c.rope_theta > 1;
  if (!norm || !theta || !std::isfinite(c.expert_scale)) {
    return error(StatusCode::corrupt_data, c.architecture, ": norm eps ", c.norm_eps, ", rope theta ", c.rope_theta,
                 ", expert scale ", c.expert_scale, ": wants finite, eps >= 0 and theta > 1");
  }
  WINNOW_TRY(check_yarn(c));
  if (!c.has_indexer()) return Status();
  if (c.full_indexer.size() != static_cast<std::size_t>(c.layers)) {
    return error(StatusCode::corrupt_data, c.architecture, ": indexer types for ", c.full_indexer.size(),
                 " layers, the model has ", c.layers);
  }
  if (!c.full_indexer[0]) {
    return error(StatusCode::corrupt_data, c.architecture,
                 ": layer 0 shares the selection of an earlier layer, but there is none");
  }
  return Status();
}

}  // namespace

Result<ModelConfig> read_config(const Checkpoint& checkpoint) {
  Result<ModelConfig> config = checkpoint.format == ContainerFormat::gguf ? read_gguf_config(checkpoint)
                                                                          : read_hf_config(checkpoint.config_json);
  if (!config.ok()) return std::move(config).status().in(checkpoint.path);
  WINNOW_TRY(check_ranges(*config).in(checkpoint.path));
  WINNOW_TRY(check_relations(*config).in(checkpoint.path));
  return config;
}

}  // namespace winnow
