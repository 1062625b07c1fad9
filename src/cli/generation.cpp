// SPDX-License-Identifier: Apache-2.0
#include "cli/generation.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "core/progress.hpp"

namespace winnow::cli {
namespace {

std::string refusal_text(const Plan& plan) {
  std::string text = "the plan says that this model cannot run here:\n";
  for (const std::string& refusal : plan.refusals) text += concat("  ", refusal, "\n");
  if (!plan.remedies.empty()) text += "What would change that:\n";
  for (const std::string& remedy : plan.remedies) text += concat("  ", remedy, "\n");
  return text + "`winnow plan` shows the whole reasoning";
}

std::string rate(int64_t tokens, double seconds) {
  char text[96];
  std::snprintf(text, sizeof(text), "%lld tokens in %.2f s, %.1f tokens/s", static_cast<long long>(tokens), seconds,
                seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  return text;
}

// Text on its way to stdout. The demonstration model's answers begin with a newline that belongs to its prompt shape.
class Stream {
 public:
  explicit Stream(bool drop_first_newline) : drop_newline_(drop_first_newline) {}

  [[nodiscard]] bool write(std::string text) {
    if (drop_newline_ && !text.empty()) {
      drop_newline_ = false;
      if (text.front() == '\n') text.erase(0, 1);
    }
    text_ += text;
    return text.empty() || write_out(text);
  }
  [[nodiscard]] bool end() { return text_.empty() || text_.back() == '\n' || write_out("\n"); }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  bool drop_newline_;
  std::string text_;
};

}  // namespace

Result<std::unique_ptr<Generation>> Generation::open(const RunChoice& choice, bool raw) {
  std::unique_ptr<Generation> self(new Generation(choice));
  WINNOW_TRY_ASSIGN(self->checkpoint_, open_checkpoint(choice.model));
  WINNOW_TRY(self->checkpoint_.require_data());
  WINNOW_TRY_ASSIGN(self->config_, read_config(self->checkpoint_));
  WINNOW_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(self->checkpoint_));
  self->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  if (raw) return self;
  self->shape_ = detect_prompt_shape(self->checkpoint_, *self->tokenizer_);
  if (self->shape_ == PromptShape::raw) {
    print_error("winnow run: no known prompt shape in this file; the text goes in as it is\n");
  }
  return self;
}

Result<std::vector<int32_t>> Generation::encode(const std::vector<Turn>& turns) const {
  return encode_prompt(*tokenizer_, shape_, turns);
}

Status Generation::load(int64_t wanted) {
  WINNOW_TRY_ASSIGN(const DeviceInfo device, parse_device("this"));
  PlanOptions options = choice_.plan_options();
  if (options.context == 0 && wanted > 0) options.context = std::min(wanted, config_.context);
  WINNOW_TRY_ASSIGN(const Plan plan, make_plan(checkpoint_, device, options));
  refused_ = !plan.can_run();
  if (refused_) return error(StatusCode::unsupported, refusal_text(plan));
  context_ = plan.context;

  WINNOW_TRY_ASSIGN(model_, Model::load(checkpoint_));
  EngineOptions engine_options;
  engine_options.context = context_;
  engine_options.rows = choice_.rows();
  engine_options.keys = choice_.keys();
  engine_options.attention = choice_.attention;
  engine_options.dense = choice_.dense;
  WINNOW_TRY_ASSIGN(engine_, Engine::create(*model_, *tokenizer_, engine_options));
  return {};
}

Result<Generation::Answer> Generation::answer(const std::vector<int32_t>& prompt, const SamplingOptions& sampling) {
  WINNOW_TRY_ASSIGN(const SequenceId sequence, engine_->add(prompt, sampling));
  Stream stream(shape_ == PromptShape::winnow_tiny);
  Answer answer;
  report_progress("prefill", 0, static_cast<int64_t>(prompt.size()), "tokens");  // the bar's clock begins here
  while (answer.finish == Finish::running) {
    if (interrupted() || answer.output_closed) {
      WINNOW_TRY(engine_->cancel(sequence));
      answer.finish = Finish::cancelled;
      break;
    }
    WINNOW_TRY_ASSIGN(const std::vector<Output> outputs, engine_->step());
    for (const Output& output : outputs) {
      if (output.sequence != sequence) continue;
      answer.output_closed = !stream.write(output.text);
      answer.finish = output.finish;
    }
    if (outputs.empty() && engine_->idle()) break;
  }
  if (!answer.output_closed) answer.output_closed = !stream.end();
  answer.text = stream.take();
  return answer;
}

std::string Generation::statistics(Finish finish) const {
  const EngineStats& stats = engine_->stats();
  std::string text = concat("prefill  ", rate(stats.prefill_tokens, stats.prefill_seconds), "\n");
  text += concat("decode   ", rate(stats.decode_tokens, stats.decode_seconds), "\n");
  if (stats.rows_visible > 0) {
    char share[64];
    std::snprintf(share, sizeof(share), "%.1f %%",
                  100.0 * static_cast<double>(stats.rows_read) / static_cast<double>(stats.rows_visible));
    text += concat("read     ", share, " of the rows that dense attention would have read (", stats.rows_read, " of ",
                   stats.rows_visible, ")\n");
  }
  return text + concat("stop     ", name_of(finish), "\n");
}

}  // namespace winnow::cli
