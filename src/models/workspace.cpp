// SPDX-License-Identifier: Apache-2.0
#include "models/workspace.hpp"

#include <algorithm>

#include "core/checked.hpp"

namespace winnow {
namespace {

// Hands out consecutive pieces, each aligned like a Buffer.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  void carve(TensorView<T>& view, std::initializer_list<int64_t> sizes) {
    T* data = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    view = TensorView<T>(data, sizes);
    const int64_t elements = view.sizes[0] * view.strides[0];
    used_ += round_up(elements * static_cast<int64_t>(sizeof(T)), static_cast<int64_t>(kBufferAlignment));
  }
  [[nodiscard]] int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Dense lists are as wide as the context: tokens are processed in groups so that lists stay below this.
constexpr int64_t kDenseListEntries = int64_t{4} << 20;

int64_t ffn_width(const ModelConfig& c) {
  return std::max({c.dense_layers > 0 ? c.dense_width : 0, c.shared_experts * c.expert_width, int64_t{1}});
}

}  // namespace

int64_t context_of(const ModelConfig& config, const RunnerOptions& options) {
  return options.context > 0 ? options.context : config.context;
}

int64_t list_width(const ModelConfig& config, const RunnerOptions& options) {
  const int64_t context = context_of(config, options);
  return uses_indexer(config, options) ? std::min(config.index_topk, context) : context;
}

Workspace lay_out(const ModelConfig& c, const RunnerOptions& options, std::byte* base) {
  const int64_t tokens = options.step_tokens;
  const int64_t width = list_width(c, options);
  Workspace w;
  w.list_tokens = uses_indexer(c, options) ? tokens : std::clamp<int64_t>(kDenseListEntries / width, 1, tokens);
  Carver carver(base);
  carver.carve(w.ids, {tokens});
  carver.carve(w.sequences, {tokens});
  carver.carve(w.positions, {tokens});
  carver.carve(w.visible, {tokens});
  carver.carve(w.slots, {tokens});
  carver.carve(w.read_slots, {w.list_tokens, width});
  carver.carve(w.read_count, {tokens});
  carver.carve(w.wanted, {tokens});
  carver.carve(w.cos, {tokens, c.head_rope / 2});
  carver.carve(w.sin, {tokens, c.head_rope / 2});
  carver.carve(w.x, {tokens, c.hidden});
  carver.carve(w.normed, {tokens, c.hidden});
  carver.carve(w.delta, {tokens, c.hidden});
  carver.carve(w.q_low, {tokens, c.q_lora});
  carver.carve(w.q, {tokens, c.heads, c.head_nope + c.head_rope});
  carver.carve(w.kv, {tokens, c.kv_lora + c.head_rope});
  carver.carve(w.q_absorbed, {tokens, c.heads, c.kv_lora + c.head_rope});
  carver.carve(w.latent_out, {tokens, c.heads, c.kv_lora});
  carver.carve(w.heads_out, {tokens, c.heads, c.head_v});
  const bool indexer = uses_indexer(c, options);
  carver.carve(w.index_q, {tokens, indexer ? c.index_heads : 0, c.index_dim});
  carver.carve(w.index_k, {tokens, indexer ? c.index_dim : 0});
  carver.carve(w.index_weight, {tokens, indexer ? c.index_heads : 0});
  carver.carve(w.ffn_gate, {tokens, ffn_width(c)});
  carver.carve(w.ffn_up, {tokens, ffn_width(c)});
  carver.carve(w.expert_ids, {tokens, c.experts_used});
  carver.carve(w.expert_weights, {tokens, c.experts_used});
  w.bytes = carver.used();
  return w;
}

int64_t workspace_bytes(const ModelConfig& config, const RunnerOptions& options) {
  return lay_out(config, options, nullptr).bytes;
}

}  // namespace winnow
