// SPDX-License-Identifier: Apache-2.0
// winnow verify: does the model compute what a reference implementation computed?
#include "verify/verify.hpp"

#include <filesystem>

#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "formats/text_file.hpp"

namespace winnow::cli {
namespace {

constexpr int64_t kMaxGenerateBytes = int64_t{1} << 30;

struct VerifyArguments {
  RunChoice choice;
  std::string golden, generations;
  double tolerance = 2e-4;
  int32_t step_tokens = 512;
  bool json = false;
};

Status add_generations(const VerifyArguments& arguments, Golden& golden) {
  std::string path = arguments.generations;
  if (path.empty()) {
    path = (std::filesystem::path(arguments.golden).parent_path() / "golden_generate.json").string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return {};
  }
  WINNOW_TRY_ASSIGN(const std::string text, read_text_file(path, kMaxGenerateBytes));
  return read_generations(text, golden).in(path);
}

Result<VerifyReport> verify_files(const VerifyArguments& arguments) {
  const RunChoice& choice = arguments.choice;
  WINNOW_TRY(prepare(choice.plugins, choice.threads));
  WINNOW_TRY_ASSIGN(Golden golden, read_golden(arguments.golden));
  WINNOW_TRY(add_generations(arguments, golden));
  WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(choice.model));
  WINNOW_TRY(checkpoint.require_data());
  VerifyOptions options;
  options.attention = choice.attention;
  options.dense = choice.dense;
  options.step_tokens = arguments.step_tokens;
  options.logit_tolerance = arguments.tolerance;
  options.exact = !is_quantised(checkpoint);
  // Random models have no tokenizer, and need none unless an answer is to be read.
  auto tokenizer = Tokenizer::load(checkpoint);
  WINNOW_TRY_ASSIGN(const std::unique_ptr<Model> model, Model::load(checkpoint));
  return verify(*model, tokenizer.ok() ? &tokenizer.value() : nullptr, golden, options);
}

int verify_command(const VerifyArguments& arguments) {
  install_progress_bar();
  const Result<VerifyReport> report = verify_files(arguments);
  if (!report.ok()) return fail("verify", report.status());
  return finish(arguments.json ? to_json(*report) : printable(to_text(*report)), report->passed() ? kOk : kDisagrees);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("verify", "Compare a model with what a reference implementation computed");
  const auto arguments = std::make_shared<VerifyArguments>();
  add_model(*sub, arguments->choice.model);
  sub->add_option("GOLDEN", arguments->golden, "Golden file (.safetensors)")
      ->required()
      ->type_name("")
      ->check(text_given());
  sub->add_option("--generate", arguments->generations,
                  "Prompts with greedy answers (default: golden_generate.json beside GOLDEN, when there)")
      ->type_name("JSON");
  sub->add_option("--tolerance", arguments->tolerance, "Worst logit error, as a share of the largest (default: 2e-4)")
      ->type_name("X")
      ->check(number_between(0, 1));
  sub->add_option("--step-tokens", arguments->step_tokens, "Tokens of one prefill step (default: 512)")
      ->type_name("N")
      ->check(number_between(1, 65536));
  add_attention(*sub, arguments->choice);
  add_threads(*sub, arguments->choice);
  add_plugins(*sub, arguments->choice.plugins);
  add_json(*sub, arguments->json);
  sub->footer(
      "\nGOLDEN holds, for j = 0, 1, ...: ids{j} [T], logits{j} [T, vocab], topk{j}_full{i} [T, k], greedy{j} [n]; or\n"
      "text_ids, text_logits_last4, text_argmax, text_nll, text_topk_l{i}_last. What is absent is not compared.\n"
      "Runs with f32 cache rows, keys and activations. Weights in f32, f16 or bf16 must agree in everything; with\n"
      "quantised weights the mean NLL (within 0.5 %) and the codes in the answers decide.\n"
      "Exit status 0 when the model agrees, 4 when it does not.\n"
      "\nExamples:\n"
      "  winnow verify nano.gguf golden.safetensors\n"
      "  winnow verify checkpoint/ golden.safetensors --json\n"
      "  winnow verify nano.gguf golden.safetensors --attention cpu.reference\n");
  sub->callback([arguments, &action] { action = [arguments] { return verify_command(*arguments); }; });
}

}  // namespace winnow::cli
