// SPDX-License-Identifier: Apache-2.0
// Scratch memory of a runner: every intermediate of a step, for step_tokens tokens, laid out once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor_view.hpp"
#include "models/model.hpp"

namespace winnow {

struct Workspace {
  TensorView<int32_t> ids, sequences, positions;  // [tokens]
  TensorView<int32_t> visible;                    // [tokens] positions that a token may read: its own + 1
  TensorView<int32_t> slots;                      // [tokens] where the token's row goes
  TensorView<int32_t> read_slots;                 // [tokens, list_width] what attention reads; dense: [list_tokens, ..]
  TensorView<int32_t> read_count;                 // [tokens] leading entries that count
  TensorView<int32_t> wanted;                     // [tokens] rows whose logits are wanted
  TensorView<float> cos, sin;                     // [tokens, rope / 2]
  TensorView<float> x, normed, delta;             // [tokens, hidden]
  TensorView<float> q_low;                        // [tokens, q_lora]
  TensorView<float> q;                            // [tokens, heads, nope + rope]
  TensorView<float> kv;                           // [tokens, kv_lora + rope]
  TensorView<float> q_absorbed;                   // [tokens, heads, kv_lora + rope]
  TensorView<float> latent_out;                   // [tokens, heads, kv_lora]
  TensorView<float> heads_out;                    // [tokens, heads, value]
  TensorView<float> index_q;                      // [tokens, index_heads, index_dim]
  TensorView<float> index_k;                      // [tokens, index_dim]
  TensorView<float> index_weight;                 // [tokens, index_heads]
  TensorView<float> ffn_gate, ffn_up;             // [tokens, widest dense or shared FFN]
  TensorView<int32_t> expert_ids;                 // [tokens, experts_used]
  TensorView<float> expert_weights;               // [tokens, experts_used]
  int64_t list_tokens = 0;                        // tokens whose read lists fit at once
  int64_t bytes = 0;
};

// Views from `base` on; with base null only sizes are meaningful.
[[nodiscard]] Workspace lay_out(const ModelConfig& config, const RunnerOptions& options, std::byte* base);

// Entries of one read list: topk, or the context for a dense model.
[[nodiscard]] int64_t list_width(const ModelConfig& config, const RunnerOptions& options);
[[nodiscard]] int64_t context_of(const ModelConfig& config, const RunnerOptions& options);
[[nodiscard]] inline bool uses_indexer(const ModelConfig& config, const RunnerOptions& options) {
  return config.has_indexer() && !options.dense;
}

}  // namespace winnow
