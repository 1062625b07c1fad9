// SPDX-License-Identifier: Apache-2.0
#include "verify/sequence_run.hpp"

#include <algorithm>
#include <numeric>

namespace winnow {

Result<SequenceRun> SequenceRun::create(const Model& model, const RunnerOptions& options) {
  SequenceRun run;
  run.vocab_ = model.config().vocab;
  WINNOW_TRY_ASSIGN(run.runner_, Runner::create(model, options));
  const CacheShape shape = cache_shape(model.config(), options);
  WINNOW_TRY_ASSIGN(run.cache_, KvCache::create(shape, pages_for(shape, options.context), 1, options.context));
  WINNOW_TRY(run.restart());
  return run;
}

Status SequenceRun::restart() {
  if (sequence_ >= 0) cache_->close(sequence_);
  sequence_ = -1;
  length_ = 0;
  WINNOW_TRY_ASSIGN(sequence_, cache_->open());
  return {};
}

Status SequenceRun::feed(std::span<const int32_t> tokens, const Wanted& wanted, const Visitor& visitor) {
  const auto chunk = static_cast<std::size_t>(runner_->options().step_tokens);
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - at);
    WINNOW_TRY(feed_chunk(tokens.subspan(at, count), at + count == tokens.size(), wanted, visitor));
  }
  return {};
}

Status SequenceRun::feed_chunk(std::span<const int32_t> tokens, bool last, const Wanted& wanted,
                               const Visitor& visitor) {
  const auto count = static_cast<int32_t>(tokens.size());
  WINNOW_TRY(cache_->reserve(sequence_, length_ + count));
  std::vector<int32_t> sequences(tokens.size(), sequence_), positions(tokens.size()), rows;
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(length_));
  if (wanted.all_logits) {
    rows.resize(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
  } else if (last) {
    rows.push_back(count - 1);
  }
  const StepBatch batch{tokens, sequences, positions, rows, wanted.selections};
  WINNOW_TRY_ASSIGN(const StepResult result, runner_->step(batch, *cache_));
  for (std::size_t i = 0; i < rows.size() && visitor.logits; ++i) {
    visitor.logits(length_ + rows[i], {result.logits.row(i), static_cast<std::size_t>(vocab_)});
  }
  for (const LayerSelection& layer : result.selections) {
    for (int32_t row = 0; row < count && visitor.selection; ++row) visitor.selection(length_ + row, layer, row);
  }
  length_ += count;
  return {};
}

}  // namespace winnow
