// SPDX-License-Identifier: Apache-2.0
// What the indexer chose, in positions, and how clear each choice was. For verify and inspection: scores are computed
// again, one by one, from the queries and the cached keys.
#pragma once

#include <span>

#include "cache/kv_cache.hpp"
#include "models/model.hpp"
#include "models/workspace.hpp"

namespace winnow {

// Host copies of what select() saw for the tokens of the batch.
struct CaptureInputs {
  std::span<const float> q;             // [tokens, index_heads, index_dim], rotated
  std::span<const float> weight;        // [tokens, index_heads], scaled
  std::span<const int32_t> read_slots;  // [tokens, topk]
  int64_t index_heads = 0, index_dim = 0, topk = 0;
};

[[nodiscard]] LayerSelection capture_selection(int64_t layer, const StepBatch& batch, const KvCache& cache,
                                               const CaptureInputs& inputs);

}  // namespace winnow
