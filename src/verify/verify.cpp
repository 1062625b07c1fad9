// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.hpp"

#include <algorithm>
#include <cmath>

#include "core/progress.hpp"
#include "verify/sequence_run.hpp"

namespace winnow {
namespace {

using Wanted = SequenceRun::Wanted;
using Visitor = SequenceRun::Visitor;

// The longest sequence that the golden makes the model hold.
int64_t context_of(const Golden& golden) {
  std::size_t longest = 1;
  for (const GoldenInput& input : golden.inputs) longest = std::max(longest, input.ids.size() + input.greedy.size());
  for (const GoldenGeneration& g : golden.generations) longest = std::max(longest, g.prompt.size() + g.greedy.size());
  return static_cast<int64_t>(longest);
}

Status check_ids(const std::string& name, const std::vector<int32_t>& ids, int64_t vocab) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    return error(StatusCode::corrupt_data, "golden ", name, " holds token ", id, ", the model's vocabulary has ",
                 vocab);
  }
  return {};
}

// Inputs alone compare nothing; agreement with them would be no agreement.
Status check_says_something(const Golden& golden) {
  if (!golden.generations.empty()) return {};
  for (const GoldenInput& input : golden.inputs) {
    if (!input.logits.empty() || !input.selections.empty() || !input.greedy.empty() || !input.argmax.empty() ||
        !input.nll.empty()) {
      return {};
    }
  }
  return error(StatusCode::corrupt_data,
               "the golden has inputs and nothing to compare with: wants logits, selections, ",
               "greedy continuations, argmax or nll; see winnow verify --help");
}

Status check_fit(const ModelConfig& config, const Golden& golden) {
  WINNOW_TRY(check_says_something(golden));
  for (const GoldenInput& input : golden.inputs) {
    WINNOW_TRY(check_ids(input.name, input.ids, config.vocab));
    WINNOW_TRY(check_ids(input.name + " greedy", input.greedy, config.vocab));
    WINNOW_TRY(check_ids(input.name + " argmax", input.argmax, config.vocab));
    if (!input.logits.empty() && input.vocab != config.vocab) {
      return error(StatusCode::corrupt_data, "golden logits of ", input.name, " have ", input.vocab,
                   " columns, the model's vocabulary has ", config.vocab, "; is it the golden of another model?");
    }
    for (const GoldenSelection& selection : input.selections) {
      const int64_t layers = selection.by_layer ? config.layers : config.full_layers();
      if (selection.index < layers) continue;
      return error(StatusCode::corrupt_data, "golden ", input.name, " has a selection of ",
                   selection.by_layer ? "layer " : "full layer ", selection.index, ", the model has ", layers,
                   ", counted from 0; is it the golden of another model?");
    }
  }
  for (const GoldenGeneration& generation : golden.generations) {
    WINNOW_TRY(check_ids(generation.name, generation.prompt, config.vocab));
    WINNOW_TRY(check_ids(generation.name, generation.greedy, config.vocab));
  }
  if (config.context > 0 && context_of(golden) > config.context) {
    return error(StatusCode::corrupt_data, "the golden has a sequence of ", context_of(golden),
                 " tokens, the model's context is ", config.context);
  }
  return {};
}

// The layer that a golden selection speaks of.
int64_t layer_of(const GoldenSelection& selection, const ModelConfig& config) {
  if (selection.by_layer) return selection.index;
  int64_t full = -1;
  for (std::size_t layer = 0; layer < config.full_indexer.size(); ++layer) {
    full += config.full_indexer[layer] ? 1 : 0;
    if (full == selection.index) return static_cast<int64_t>(layer);
  }
  return -1;
}

// Feeds one input and compares what comes out of it.
class InputCheck {
 public:
  InputCheck(const GoldenInput& input, const ModelConfig& config, const VerifyOptions& options)
      : input_(input), options_(options), logits_(input.logits) {
    result_.name = input.name;
    result_.tokens = static_cast<int64_t>(input.ids.size());
    if (options.dense || !config.has_indexer()) return;
    for (const GoldenSelection& selection : input.selections) {
      result_.selections.emplace_back().layer = layer_of(selection, config);
    }
  }

  Status run(SequenceRun& sequence) {
    const Wanted wanted{true, !result_.selections.empty()};
    const Visitor visitor{
        [this](int64_t position, std::span<const float> row) { see_logits(position, row); },
        [this](int64_t position, const LayerSelection& layer, int64_t row) { see_selection(position, layer, row); }};
    WINNOW_TRY(sequence.feed(input_.ids, wanted, visitor));
    finish();
    return {};
  }

  VerifyCase& result() { return result_; }
  [[nodiscard]] const std::vector<float>& last_logits() const { return last_; }

 private:
  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(input_.ids.size()); }

  void see_logits(int64_t position, std::span<const float> row) {
    const int64_t golden_row = position - (tokens() - input_.logit_rows);
    if (golden_row >= 0 && !input_.logits.empty()) {
      const std::span<const float> golden(input_.logits.data() + golden_row * input_.vocab,
                                          static_cast<std::size_t>(input_.vocab));
      logits_.add(position, golden, row);
      if (input_.argmax.empty())
        argmax_.push_back({position, argmax_of(golden) == argmax_of(row), top_two_gap(golden)});
    }
    // Without golden logits at this position the gap is our own.
    if (!input_.argmax.empty()) {
      const bool equal = argmax_of(row) == input_.argmax[static_cast<std::size_t>(position)];
      argmax_.push_back({position, equal, top_two_gap(row)});
    }
    if (position + 1 < tokens()) nll_sum_ += nll_of(row, input_.ids[static_cast<std::size_t>(position) + 1]);
    if (position + 1 == tokens()) last_.assign(row.begin(), row.end());
  }

  void see_selection(int64_t position, const LayerSelection& layer, int64_t row) {
    for (std::size_t i = 0; i < result_.selections.size(); ++i) {
      const GoldenSelection& golden = input_.selections[i];
      const int64_t golden_row = position - (tokens() - golden.rows);
      if (result_.selections[i].layer != layer.layer || golden_row < 0) continue;
      const auto width = static_cast<std::size_t>(golden.width), topk = static_cast<std::size_t>(layer.topk);
      add_selection(result_.selections[i], position, {golden.positions.data() + golden_row * golden.width, width},
                    {layer.positions.data() + row * layer.topk, topk},
                    layer.boundary_gap[static_cast<std::size_t>(row)], options_.tie_gap);
    }
  }

  void finish() {
    result_.logits = logits_.result();
    // Ties are judged by the error that is there, but never by more than the error that is allowed.
    const double error = std::min(result_.logits.worst, options_.logit_tolerance) * result_.logits.largest;
    result_.argmax = agree(argmax_, error);
    if (input_.nll.empty()) return;
    double golden_sum = 0;
    for (const float value : input_.nll) golden_sum += value;
    result_.golden_nll = golden_sum / static_cast<double>(input_.nll.size());
    result_.nll = nll_sum_ / static_cast<double>(input_.nll.size());
  }

  const GoldenInput& input_;
  const VerifyOptions& options_;
  LogitComparer logits_;
  std::vector<ArgmaxRow> argmax_;
  std::vector<float> last_;
  double nll_sum_ = 0;
  VerifyCase result_;
};

// Continues a sequence greedily from its last logits and compares. Stops at the first difference: behind it the two
// texts are different prompts.
Status run_greedy(SequenceRun& sequence, std::vector<float> logits, const std::vector<int32_t>& wanted, bool to_the_end,
                  GreedyAgreement& out) {
  out.wanted = wanted;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto token = static_cast<int32_t>(argmax_of(logits));
    out.found.push_back(token);
    if (token != wanted[i] && out.first_difference < 0) {
      out.first_difference = static_cast<int64_t>(i);
      out.gap = top_two_gap(logits);
      if (!to_the_end) break;
    }
    if (i + 1 == wanted.size()) break;
    const int32_t next[] = {token};
    const Visitor keep{[&](int64_t, std::span<const float> row) { logits.assign(row.begin(), row.end()); }, {}};
    WINNOW_TRY(sequence.feed(next, {}, keep));
  }
  return {};
}

void judge_exact(VerifyCase& c, const VerifyOptions& options) {
  if (!(c.logits.worst <= options.logit_tolerance)) {
    c.failures.push_back(concat("logits: worst error ", c.logits.worst, " of the largest |logit|, wants at most ",
                                options.logit_tolerance, " (position ", c.logits.worst_row, ", token ",
                                c.logits.worst_id, ")"));
  }
  if (c.argmax.wrong() > 0) {
    c.failures.push_back(concat("argmax: differs at ", c.argmax.wrong(), " of ", c.argmax.compared,
                                " positions, first at ", c.argmax.first_wrong));
  }
  for (const SelectionAgreement& s : c.selections) {
    if (s.compared == 0) {
      c.failures.push_back(
          concat("selection of layer ", s.layer, ": the golden has one, this model's layer has no indexer of its own"));
    }
    if (s.wrong() == 0) continue;
    c.failures.push_back(concat("selection of layer ", s.layer, ": differs at ", s.wrong(), " of ", s.compared,
                                " positions, first at ", s.first_wrong));
  }
  if (c.greedy.first_difference >= 0) {
    c.failures.push_back(concat("greedy: token ", c.greedy.first_difference, " is ",
                                c.greedy.found.at(static_cast<std::size_t>(c.greedy.first_difference)), ", wants ",
                                c.greedy.wanted[static_cast<std::size_t>(c.greedy.first_difference)], " (top-two gap ",
                                c.greedy.gap, ")"));
  }
}

void judge(VerifyCase& c, const VerifyOptions& options) {
  if (options.exact) judge_exact(c, options);
  const double nll_error = c.golden_nll > 0 ? std::abs(c.nll - c.golden_nll) / c.golden_nll : 0;
  if (!(nll_error <= options.nll_tolerance)) {
    c.failures.push_back(concat("mean NLL: ", c.nll, ", golden ", c.golden_nll, ", differs by ", nll_error * 100,
                                " %, wants at most ", options.nll_tolerance * 100, " %"));
  }
  if (!c.code.empty() && c.answer.find(c.code) == std::string::npos) {
    c.failures.push_back(concat("answer: lacks the code ", c.code, ", is \"", c.answer, "\""));
  }
}

Result<VerifyCase> check_input(SequenceRun& sequence, const GoldenInput& input, const ModelConfig& config,
                               const VerifyOptions& options) {
  InputCheck check(input, config, options);
  WINNOW_TRY(sequence.restart());
  WINNOW_TRY(check.run(sequence));
  WINNOW_TRY(run_greedy(sequence, check.last_logits(), input.greedy, false, check.result().greedy));
  judge(check.result(), options);
  return std::move(check.result());
}

Result<VerifyCase> check_generation(SequenceRun& sequence, const GoldenGeneration& generation,
                                    const Tokenizer* tokenizer, const VerifyOptions& options) {
  VerifyCase result;
  result.name = generation.name;
  result.tokens = static_cast<int64_t>(generation.prompt.size());
  std::vector<float> logits;
  WINNOW_TRY(sequence.restart());
  WINNOW_TRY(sequence.feed(generation.prompt, {},
                           {[&](int64_t, std::span<const float> row) { logits.assign(row.begin(), row.end()); }, {}}));
  // A quantised model may word its answer otherwise and still give the code, so it speaks to the end.
  WINNOW_TRY(run_greedy(sequence, std::move(logits), generation.greedy, !options.exact, result.greedy));
  result.code = generation.code;
  if (tokenizer != nullptr) result.answer = tokenizer->decode(result.greedy.found);
  judge(result, options);
  return result;
}

}  // namespace

bool VerifyReport::passed() const {
  return std::all_of(cases.begin(), cases.end(), [](const VerifyCase& c) { return c.failures.empty(); });
}

bool is_quantised(const Checkpoint& checkpoint) {
  return std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(), [](const TensorInfo& tensor) {
    return tensor.rank >= 2 && tensor.type != StorageType::F32 && tensor.type != StorageType::F16 &&
           tensor.type != StorageType::BF16;
  });
}

Result<VerifyReport> verify(const Model& model, const Tokenizer* tokenizer, const Golden& golden,
                            const VerifyOptions& options) {
  WINNOW_TRY(check_fit(model.config(), golden));
  RunnerOptions runner;
  runner.step_tokens = options.step_tokens;
  runner.context = context_of(golden);
  runner.rows = RowFormat::f32;
  runner.keys = KeyFormat::f32;
  runner.attention = options.attention;
  runner.dense = options.dense;
  WINNOW_TRY_ASSIGN(SequenceRun sequence, SequenceRun::create(model, runner));

  VerifyReport report;
  report.exact = options.exact;
  const auto total = static_cast<int64_t>(golden.inputs.size() + golden.generations.size());
  const auto keep = [&](const std::string& name, Result<VerifyCase> result) -> Status {
    if (!result.ok()) return std::move(result).status().in(name);
    report.cases.push_back(std::move(result).value());
    report_progress("verify", static_cast<int64_t>(report.cases.size()), total, "inputs");
    return {};
  };
  for (const GoldenInput& input : golden.inputs) {
    WINNOW_TRY(keep(input.name, check_input(sequence, input, model.config(), options)));
  }
  for (const GoldenGeneration& generation : golden.generations) {
    WINNOW_TRY(keep(generation.name, check_generation(sequence, generation, tokenizer, options)));
  }
  return report;
}

}  // namespace winnow
