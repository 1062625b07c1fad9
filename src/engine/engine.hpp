// SPDX-License-Identifier: Apache-2.0
// Engine: sequences in, tokens out. One step runs the model once over tokens of several sequences: prefill chunks
// and decode tokens side by side. The caller decides when to step; the engine owns cache, scheduler and samplers. Not
// thread-safe: one thread adds, cancels and steps, in any order.
//
// A step takes one token of every sequence that decodes, then fills up with prompt tokens, oldest sequence first. When
// pages run out, the youngest sequence gives its pages back and is computed again later; its text goes on unchanged.
// The text of a sequence does not depend on what else is in the batch, nor on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "engine/sampler.hpp"
#include "models/model.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow {

struct EngineOptions {
  int64_t context = 0;        // positions of one sequence, 0: the model's own
  int32_t max_sequences = 1;  // sequences at once
  int64_t cache_tokens = 0;   // positions that the cache holds for all sequences, 0: max_sequences full contexts
  int32_t step_tokens = 512;  // most tokens of one step, decode and prefill together
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  std::string attention;  // forced backend name, or empty
  bool dense = false;     // ignore the indexer: every token reads every earlier one
};

using SequenceId = int64_t;

enum class Finish { running, stop_token, stop_string, length, context_full, cancelled };
[[nodiscard]] const char* name_of(Finish finish);

struct Output {
  SequenceId sequence = 0;
  int32_t token = -1;  // the token sampled in this step, -1 when the sequence is still in prefill
  std::string text;    // text that became certain in this step: whole characters, no part of a stop string
  Finish finish = Finish::running;
};

struct EngineStats {
  int64_t prefill_tokens = 0, decode_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t rows_read = 0, rows_visible = 0;  // cache rows that attention read, and that a dense model would have read
};

class Engine {
 public:
  // Plans and allocates the cache. model and tokenizer must outlive the engine.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const Model& model, const Tokenizer& tokenizer,
                                                              const EngineOptions& options);
  ~Engine();

  // invalid_argument: empty prompt, prompt longer than the context (both numbers), token ids outside the vocabulary,
  // sampling options out of range. out_of_memory: no pages or sequence slots left.
  // A prompt must leave room for one token more than it has.
  [[nodiscard]] Result<SequenceId> add(std::vector<int32_t> prompt, const SamplingOptions& sampling);
  // Frees the sequence at once; the next step reports it as cancelled. not_found when it is not running.
  [[nodiscard]] Status cancel(SequenceId sequence);

  // One model step over the runnable sequences, with one Output for each that took part; empty when there are none. A
  // sequence whose Output is finished is gone. corrupt_data for a NaN, naming layer and position: the sequences stay.
  [[nodiscard]] Result<std::vector<Output>> step();
  [[nodiscard]] bool idle() const;

  [[nodiscard]] const EngineStats& stats() const;
  [[nodiscard]] int64_t cache_bytes() const;  // planned, all pools

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace winnow
