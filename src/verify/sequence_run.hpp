// SPDX-License-Identifier: Apache-2.0
// One sequence at a time on a Runner of its own: feeds tokens in chunks and hands each position's logits to a visitor.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "cache/kv_cache.hpp"
#include "core/status.hpp"
#include "models/model.hpp"

namespace winnow {

class SequenceRun {
 public:
  // context: positions of the longest sequence that will be fed. model must outlive the run.
  [[nodiscard]] static Result<SequenceRun> create(const Model& model, const RunnerOptions& options);

  // Forgets everything fed so far.
  [[nodiscard]] Status restart();

  struct Wanted {
    bool all_logits = false;  // of every token; otherwise of the last one only
    bool selections = false;
  };
  struct Visitor {
    std::function<void(int64_t position, std::span<const float> logits)> logits;
    // row: of this position in layer.positions and layer.boundary_gap
    std::function<void(int64_t position, const LayerSelection& layer, int64_t row)> selection;
  };
  [[nodiscard]] Status feed(std::span<const int32_t> tokens, const Wanted& wanted, const Visitor& visitor);

  [[nodiscard]] int64_t length() const { return length_; }

 private:
  [[nodiscard]] Status feed_chunk(std::span<const int32_t> tokens, bool last, const Wanted& wanted,
                                  const Visitor& visitor);

  int64_t vocab_ = 0;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<KvCache> cache_;
  int32_t sequence_ = -1;
  int64_t length_ = 0;
};

}  // namespace winnow
