// SPDX-License-Identifier: Apache-2.0
// One decoder layer, for token rows x [tokens, hidden] (DeepSeek-V2 and V3.2 reports; GLM-5 and deepseek_v32 in
// transformers):
//   a = rms_norm(x)         q = q_up rms_norm(q_down a), per head [nope | rope]    z = kv_down a = [latent | rope]
//   latent = rms_norm(z latent); the rope parts turn by the token's position; the cache keeps [latent | rope]
//   absorbed form: head h asks the cache with [k_absorb_h q_nope | q_rope] and reads o = v_absorb_h (sum of p * latent)
//   x += output concat(o);  x += ffn(rms_norm(x))
// Indexer of a full layer: q from rms_norm(q_down a), one key per token with LayerNorm, both [rope | nope] (the rotated
// part first, unlike the main heads), head weights from a. Shared layers reuse the list of the last full layer.
#include "models/mla_family.hpp"

#include <algorithm>
#include <cmath>

namespace winnow {
namespace {

template <class T>
TensorView<T> first_rows(TensorView<T> view, int64_t rows) {
  view.sizes[0] = rows;
  return view;
}

// Elements [first, first + count) of the last dimension.
template <class T>
TensorView<T> columns(TensorView<T> view, int64_t first, int64_t count) {
  view.data += first;
  view.sizes[view.rank - 1] = count;
  return view;
}

// [tokens, width] as [tokens, 1, width].
template <class T>
TensorView<T> one_head(TensorView<T> view) {
  view.rank = 3;
  view.sizes = {view.sizes[0], 1, view.sizes[1], 0};
  view.strides = {view.strides[0], 0, 1, 0};
  return view;
}

// [tokens, heads, width] as [tokens, heads * width].
template <class T>
TensorView<T> flat(TensorView<T> view) {
  return TensorView<T>(view.data, {view.sizes[0], view.sizes[1] * view.sizes[2]});
}

HeadTensor heads(const TensorView<float>& view) { return {view.data, view.strides[0], view.strides[1]}; }

class Forward {
 public:
  explicit Forward(MlaStep& step)
      : s_(step), c_(step.config), ops_(step.ops), m_(step.memory), indexer_(uses_indexer(c_, step.options)) {
    for (TensorView<float>* view :
         {&m_.cos, &m_.sin, &m_.x, &m_.normed, &m_.delta, &m_.q_low, &m_.q, &m_.kv, &m_.q_absorbed, &m_.latent_out,
          &m_.heads_out, &m_.index_q, &m_.index_k, &m_.index_weight, &m_.ffn_gate, &m_.ffn_up, &m_.expert_weights}) {
      *view = first_rows(*view, s_.tokens);
    }
    for (TensorView<int32_t>* view :
         {&m_.ids, &m_.sequences, &m_.positions, &m_.visible, &m_.slots, &m_.read_count, &m_.expert_ids}) {
      *view = first_rows(*view, s_.tokens);
    }
  }

  Status run() {
    ops_.embed(s_.weights.embedding, m_.ids, m_.x);
    note(m_.x, {Part::embedding});
    ops_.rope_angles(m_.positions, s_.weights.rope_frequencies, c_.yarn.attention_factor, m_.cos, m_.sin);
    for (int64_t layer = 0; layer < c_.layers; ++layer) {
      WINNOW_TRY(attention(layer));
      feed_forward(layer);
    }
    head();
    return Status();
  }

 private:
  Status attention(int64_t layer) {
    const LayerWeights& w = s_.weights.layers[layer];
    ops_.rms_norm(m_.x, w.attn_norm, c_.norm_eps, m_.normed);
    const bool full = indexer_ && !w.indexer.empty();
    project(w, full);
    if (full) index_queries_and_key(w.indexer, layer);
    WINNOW_TRY(write_cache(layer, full));
    if (full) WINNOW_TRY(select(layer));
    WINNOW_TRY(indexer_ ? attend(layer, 0, s_.tokens) : attend_densely(layer));
    ops_.head_linear(m_.latent_out, w.v_absorb, m_.heads_out);
    ops_.linear(flat(m_.heads_out), w.output, m_.delta);
    ops_.add(m_.delta, m_.x);
    note(m_.x, {Part::attention, layer});
    return Status();
  }

  // Everything that the normed row is multiplied with, then the second half of q; rotation; absorption.
  void project(const LayerWeights& w, bool full) {
    std::vector<LinearProduct> products = {{&w.kv_down, m_.kv}};
    products.push_back(w.q.empty() ? LinearProduct{&w.q_down, m_.q_low} : LinearProduct{&w.q, flat(m_.q)});
    if (full) {
      products.push_back({&w.indexer.k, m_.index_k});
      products.push_back({&w.indexer.head, m_.index_weight});
    }
    ops_.linear(m_.normed, products);
    if (w.q.empty()) {
      ops_.rms_norm(m_.q_low, w.q_norm, c_.norm_eps, m_.q_low);
      products = {{&w.q_up, flat(m_.q)}};
      if (full) products.push_back({&w.indexer.q, flat(m_.index_q)});
      ops_.linear(m_.q_low, products);
    } else if (full) {
      ops_.linear(m_.normed, w.indexer.q, flat(m_.index_q));
    }
    const TensorView<float> latent = columns(m_.kv, 0, c_.kv_lora);
    const TensorView<float> rope = one_head(columns(m_.kv, c_.kv_lora, c_.head_rope));
    ops_.rms_norm(latent, w.kv_norm, c_.norm_eps, latent);
    rotate(rope, RopeLayout::interleaved, rope);
    ops_.head_linear(columns(m_.q, 0, c_.head_nope), w.k_absorb, columns(m_.q_absorbed, 0, c_.kv_lora));
    rotate(columns(m_.q, c_.head_nope, c_.head_rope), RopeLayout::interleaved,
           columns(m_.q_absorbed, c_.kv_lora, c_.head_rope));
  }

  void index_queries_and_key(const IndexerWeights& w, int64_t layer) {
    ops_.layer_norm(m_.index_k, w.k_norm, w.k_bias, c_.indexer_norm_eps, m_.index_k);
    const TensorView<float> q_rope = columns(m_.index_q, 0, c_.head_rope);
    const TensorView<float> k_rope = one_head(columns(m_.index_k, 0, c_.head_rope));
    rotate(q_rope, c_.indexer_rope, q_rope);
    rotate(k_rope, c_.indexer_rope, k_rope);
    const double both = static_cast<double>(c_.index_heads) * static_cast<double>(c_.index_dim);
    ops_.scale(static_cast<float>(1.0 / std::sqrt(both)), m_.index_weight);
    note(m_.index_k, {Part::indexer, layer});
    note(m_.index_weight, {Part::indexer, layer});
    note(flat(m_.index_q), {Part::indexer, layer});
  }

  void rotate(TensorView<float> x, RopeLayout layout, TensorView<float> out) {
    if (c_.head_rope > 0) ops_.rope(x, m_.cos, m_.sin, layout, out);
  }

  Status write_cache(int64_t layer, bool full) {
    CacheWriteProblem p;
    p.tokens = static_cast<int32_t>(s_.tokens);
    p.d_nope = static_cast<int32_t>(c_.kv_lora);
    p.d_rope = static_cast<int32_t>(c_.head_rope);
    p.index_dim = full ? static_cast<int32_t>(c_.index_dim) : 0;
    p.page_size = s_.cache.shape().page_size;
    p.rows = s_.options.rows;
    p.keys = s_.options.keys;
    p.activations = DType::f32;
    CacheWriteBuffers b;
    b.latent = m_.kv.data;
    b.rope = m_.kv.data + c_.kv_lora;
    b.latent_stride = b.rope_stride = m_.kv.stride(0);
    b.key = full ? m_.index_k.data : nullptr;
    b.key_stride = full ? m_.index_k.stride(0) : 0;
    b.slots = m_.slots;
    b.cache = s_.cache.rows(layer);
    b.key_cache = full ? s_.cache.keys(layer) : PagedKeys{};
    const Backend& backend = *s_.path.step("cache write").chosen;
    return backend.run_write(backend, p, b, s_.path.device, s_.execution);
  }

  // Fills the read list that this layer and the shared layers behind it use.
  Status select(int64_t layer) {
    IndexSelectProblem p;
    p.tokens = static_cast<int32_t>(s_.tokens);
    p.index_heads = static_cast<int32_t>(c_.index_heads);
    p.index_dim = static_cast<int32_t>(c_.index_dim);
    p.topk = static_cast<int32_t>(m_.read_slots.size(1));
    p.page_size = s_.cache.shape().page_size;
    p.max_len = s_.longest;
    p.keys = s_.options.keys;
    p.q_type = DType::f32;
    IndexSelectBuffers b;
    b.q = heads(m_.index_q);
    b.weight = m_.index_weight;
    b.keys = s_.cache.keys(layer);
    b.page_table = s_.cache.page_table();
    b.seq = m_.sequences;
    b.len = m_.visible;
    b.out = first_rows(m_.read_slots, s_.tokens);
    const Backend& backend = *s_.path.step("index select").chosen;
    WINNOW_TRY(backend.run_select(backend, p, b, s_.path.device, s_.execution));
    if (s_.on_selection) s_.on_selection(layer);
    return Status();
  }

  // Tokens [first, first + count) read the lists that stand at the front of read_slots.
  Status attend(int64_t layer, int64_t first, int64_t count) {
    SparseMlaProblem p;
    p.tokens = static_cast<int32_t>(count);
    p.q_heads = static_cast<int32_t>(c_.heads);
    const int64_t width = std::min(m_.read_slots.size(1), s_.longest);  // entries behind the longest list are empty
    p.topk = static_cast<int32_t>(width);
    p.page_size = s_.cache.shape().page_size;
    p.d_nope = p.d_v = static_cast<int32_t>(c_.kv_lora);
    p.d_rope = static_cast<int32_t>(c_.head_rope);
    p.softmax_scale = c_.softmax_scale();
    p.rows = s_.options.rows;
    p.activations = DType::f32;
    SparseMlaBuffers b;
    b.q = {m_.q_absorbed.row(first), m_.q_absorbed.stride(0), m_.q_absorbed.stride(1)};
    b.out = {m_.latent_out.row(first), m_.latent_out.stride(0), m_.latent_out.stride(1)};
    b.cache = s_.cache.rows(layer);
    b.topk_slots = columns(first_rows(m_.read_slots, count), 0, width);
    b.topk_len = TensorView<const int32_t>(m_.read_count.row(first), {count});
    const Backend& backend = *s_.path.step(s_.decode ? "decode attention" : "prefill attention").chosen;
    return backend.run_mla(backend, p, b, s_.path.device, s_.execution);
  }

  // Every token reads every earlier one. Lists of a step that fit at once serve all layers.
  Status attend_densely(int64_t layer) {
    const bool at_once = s_.tokens <= m_.list_tokens;
    for (int64_t first = 0; first < s_.tokens; first += m_.list_tokens) {
      const int64_t count = std::min(m_.list_tokens, s_.tokens - first);
      if (layer == 0 || !at_once) s_.fill_dense_lists(first, count);
      WINNOW_TRY(attend(layer, first, count));
    }
    return Status();
  }

  void feed_forward(int64_t layer) {
    const LayerWeights& w = s_.weights.layers[layer];
    ops_.rms_norm(m_.x, w.ffn_norm, c_.norm_eps, m_.normed);
    dense_ffn(w.mixture.empty() ? w.dense : w.mixture.shared, m_.delta);
    if (!w.mixture.empty()) mixture(w.mixture);
    ops_.add(m_.delta, m_.x);
    note(m_.x, {Part::feed_forward, layer});
  }

  // delta = down(silu(gate) * up); zero where there is no such network (a mixture without shared experts).
  void dense_ffn(const FfnWeights& w, TensorView<float> delta) {
    if (w.empty()) {
      ops_.fill(0.0f, delta);
      return;
    }
    const TensorView<float> gate = columns(m_.ffn_gate, 0, w.gate.out), up = columns(m_.ffn_up, 0, w.up.out);
    const LinearProduct products[] = {{&w.gate, gate}, {&w.up, up}};
    ops_.linear(m_.normed, products);
    ops_.swiglu(gate, up, gate);
    ops_.linear(gate, w.down, delta);
  }

  void mixture(const MixtureWeights& w) {
    RouterOptions router;
    router.sigmoid = c_.gate == GateKind::sigmoid;
    router.experts_used = c_.experts_used;
    router.groups = c_.expert_groups;
    router.groups_used = c_.expert_groups_used;
    router.normalise = c_.normalise_expert_weights;
    router.scale = c_.expert_scale;
    ops_.route(m_.normed, w.router, w.bias, router, m_.expert_ids, m_.expert_weights);
    ops_.experts(m_.normed, m_.expert_ids, m_.expert_weights, {w.gate, w.up, w.down}, m_.delta);
  }

  void head() {
    if (s_.wanted == 0) return;
    const TensorView<float> rows = first_rows(m_.delta, s_.wanted), normed = first_rows(m_.normed, s_.wanted);
    ops_.gather(m_.x, first_rows(m_.wanted, s_.wanted), rows);
    ops_.rms_norm(rows, s_.weights.final_norm, c_.norm_eps, normed);
    ops_.linear(normed, s_.weights.head, s_.logits);
    note(s_.logits, {Part::head});
  }

  void note(TensorView<float> values, Place place) { ops_.note_not_finite(values, place.code()); }

  MlaStep& s_;
  const ModelConfig& c_;
  Ops& ops_;
  Workspace m_;  // views cut to the tokens of this step
  bool indexer_;
};

}  // namespace

Status run_mla_family(MlaStep& step) { return Forward(step).run(); }

}  // namespace winnow
