// SPDX-License-Identifier: Apache-2.0
// Generation: a loaded model that answers turns, streaming text to stdout. What `run` and its --chat share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "core/status.hpp"
#include "engine/engine.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"
#include "plan/plan.hpp"
#include "tokenizer/prompt.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow::cli {

class Generation {
 public:
  // Opens the checkpoint and its tokenizer; no weights yet. io_error when tensor data is missing.
  [[nodiscard]] static Result<std::unique_ptr<Generation>> open(const RunChoice& choice, bool raw);

  [[nodiscard]] Result<std::vector<int32_t>> encode(const std::vector<Turn>& turns) const;

  // Plans for this machine, then loads and allocates a cache of the plan's context. wanted: positions needed, 0 for as
  // many as fit. refused() tells a plan that says no (its proof is the message) from other failures.
  [[nodiscard]] Status load(int64_t wanted);
  [[nodiscard]] bool refused() const { return refused_; }
  [[nodiscard]] int64_t context() const { return context_; }
  [[nodiscard]] int64_t model_context() const { return config_.context; }  // trained

  struct Answer {
    std::string text;
    Finish finish = Finish::running;
    bool output_closed = false;
  };
  // Streams the answer to stdout and ends it with a newline. SIGINT ends it with Finish::cancelled.
  [[nodiscard]] Result<Answer> answer(const std::vector<int32_t>& prompt, const SamplingOptions& sampling);

  [[nodiscard]] PromptShape shape() const { return shape_; }
  // Since load(), as lines for stderr.
  [[nodiscard]] std::string statistics(Finish finish) const;

 private:
  explicit Generation(const RunChoice& choice) : choice_(choice) {}

  RunChoice choice_;
  Checkpoint checkpoint_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  PromptShape shape_ = PromptShape::raw;
  int64_t context_ = 0;
  bool refused_ = false;
};

}  // namespace winnow::cli
