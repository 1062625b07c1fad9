// SPDX-License-Identifier: Apache-2.0
// The forward pass of the MLA family: multi-head latent attention, optionally over a selection of an indexer, and dense
// or mixture feed-forward layers. Written once in terms of Ops and of the attention path's backends.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cache/kv_cache.hpp"
#include "models/weights.hpp"
#include "models/workspace.hpp"

namespace winnow {

// Where a value that is not finite was found; encoded in one int for Ops::note_not_finite.
enum class Part : int32_t { embedding, indexer, attention, feed_forward, head };
struct Place {
  Part part;
  int64_t layer = 0;
  [[nodiscard]] int32_t code() const { return static_cast<int32_t>(layer * 8 + static_cast<int64_t>(part)); }
  static Place of(int32_t code) { return {static_cast<Part>(code % 8), code / 8}; }
};

// One step's view of everything; borrowed for the call. Workspace ids, sequences, positions, visible, slots, read_count
// and wanted are filled for `tokens` tokens.
struct MlaStep {
  const ModelConfig& config;
  const ModelWeights& weights;
  const RunnerOptions& options;
  const AttentionPath& path;
  Ops& ops;
  KvCache& cache;
  Workspace& memory;
  Execution execution;
  int64_t tokens = 0, wanted = 0;
  int64_t longest = 0;       // largest `visible`
  bool decode = false;       // one token per sequence
  TensorView<float> logits;  // [wanted, vocab]
  // Dense models: puts the lists of tokens [first, first + count) at the front of read_slots.
  std::function<void(int64_t first, int64_t count)> fill_dense_lists;
  // Called after each full layer chose, when set.
  std::function<void(int64_t layer)> on_selection;
};

[[nodiscard]] Status run_mla_family(MlaStep& step);

}  // namespace winnow
