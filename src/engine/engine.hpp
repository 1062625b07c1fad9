// SPDX-License-Identifier: Apache-2.0
// Engine: sequences in, tokens out. One step runs the model once over tokens of several sequences: prefill chunks and
// decode tokens side by side. The caller decides when to step; the engine owns cache, scheduler and samplers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "models/model.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow {

struct EngineOptions {
  int64_t context = 0;         // positions of one sequence, 0: the model's own
  int32_t max_sequences = 1;   // sequences that may hold pages at once
  int32_t step_tokens = 512;   // most tokens of one step: the prefill chunk
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  std::string attention;       // forced backend name, or empty
  bool dense = false;          // ignore the indexer: every token reads every earlier one
};

struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repetition_penalty = 1;
  uint64_t seed = 0;
  int64_t max_tokens = 512;
  std::vector<std::string> stop;     // strings that end the text; they are not part of it
  std::vector<int32_t> stop_tokens;  // besides the model's own
};

using SequenceId = int64_t;

enum class Finish { running, stop_token, stop_string, length, context_full, cancelled };
[[nodiscard]] const char* name_of(Finish finish);

struct Output {
  SequenceId sequence = 0;
  int32_t token = -1;       // the token sampled in this step, -1 when the sequence is still in prefill
  std::string text;         // text that became certain in this step: whole characters, no part of a stop string
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
  [[nodiscard]] Result<SequenceId> add(std::vector<int32_t> prompt, const SamplingOptions& sampling);
  [[nodiscard]] Status cancel(SequenceId sequence);

  // One model step over the runnable sequences; empty when there are none. Reports NaN with layer and position.
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
