// SPDX-License-Identifier: Apache-2.0
#include "models/selection_capture.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <unordered_map>

#include "core/threads.hpp"

namespace winnow {
namespace {

// The index key of one slot as floats.
void read_key(const PagedKeys& keys, const CacheShape& shape, int32_t slot, float* out) {
  const std::byte* page = keys.data + slot / shape.page_size * keys.page_stride_bytes;
  const int64_t offset = slot % shape.page_size, dim = shape.index_dim;
  switch (shape.keys) {
    case KeyFormat::f32: std::memcpy(out, page + offset * dim * 4, static_cast<std::size_t>(dim) * 4); return;
    case KeyFormat::bf16: {
      const auto* row = reinterpret_cast<const bf16*>(page) + offset * dim;
      for (int64_t i = 0; i < dim; ++i) out[i] = to_float(row[i]);
      return;
    }
    case KeyFormat::fp8: {
      float scale = 0;
      std::memcpy(&scale, page + shape.page_size * dim + offset * 4, sizeof scale);
      const auto* row = reinterpret_cast<const e4m3*>(page) + offset * dim;
      for (int64_t i = 0; i < dim; ++i) out[i] = to_float(row[i]) * scale;
      return;
    }
  }
}

// (kth - next score) / largest |score| over the positions that the token sees.
float boundary_gap(int64_t token, int32_t sequence, int64_t visible, const PagedKeys& keys, const KvCache& cache,
                   const CaptureInputs& in) {
  std::vector<float> score(static_cast<std::size_t>(visible)), key(static_cast<std::size_t>(in.index_dim));
  float largest = 0;
  for (int64_t p = 0; p < visible; ++p) {
    read_key(keys, cache.shape(), cache.slot(sequence, p), key.data());
    double sum = 0;
    for (int64_t h = 0; h < in.index_heads; ++h) {
      const float* q = in.q.data() + (token * in.index_heads + h) * in.index_dim;
      double dot = 0;
      for (int64_t i = 0; i < in.index_dim; ++i) dot += static_cast<double>(q[i]) * key[i];
      sum += in.weight[token * in.index_heads + h] * std::max(dot, 0.0);
    }
    score[p] = static_cast<float>(sum);
    largest = std::max(largest, std::abs(score[p]));
  }
  std::nth_element(score.begin(), score.begin() + in.topk - 1, score.end(), std::greater<>());
  const float kth = score[in.topk - 1];
  const float next = *std::max_element(score.begin() + in.topk, score.end());
  return largest > 0 ? (kth - next) / largest : 0.0f;
}

}  // namespace

LayerSelection capture_selection(int64_t layer, const StepBatch& batch, const KvCache& cache, const CaptureInputs& in) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const int32_t page_size = cache.shape().page_size;
  LayerSelection selection;
  selection.layer = layer;
  selection.topk = in.topk;
  selection.positions.assign(static_cast<std::size_t>(tokens * in.topk), -1);
  selection.boundary_gap.assign(static_cast<std::size_t>(tokens), std::numeric_limits<float>::infinity());
  const PagedKeys keys = cache.keys(layer);
  parallel_for(tokens, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t sequence = batch.sequences[t];
      std::unordered_map<int32_t, int32_t> page_index;
      for (int64_t i = 0; i < cache.pages_of(sequence); ++i) {
        page_index[cache.page(sequence, i)] = static_cast<int32_t>(i);
      }
      for (int64_t i = 0; i < in.topk; ++i) {
        const int32_t slot = in.read_slots[t * in.topk + i];
        if (slot < 0) continue;
        selection.positions[t * in.topk + i] = page_index[slot / page_size] * page_size + slot % page_size;
      }
      const int64_t visible = batch.positions[t] + 1;
      if (visible > in.topk) selection.boundary_gap[t] = boundary_gap(t, sequence, visible, keys, cache, in);
    }
  });
  return selection;
}

}  // namespace winnow
