// SPDX-License-Identifier: Apache-2.0
// winnow run: text in, text out. One prompt, or a conversation with --chat.
#include <unistd.h>

#include <iostream>

#include "cli/app.hpp"
#include "cli/document.hpp"
#include "cli/exit_status.hpp"
#include "cli/generation.hpp"
#include "cli/interrupt.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow::cli {
namespace {

struct RunArguments {
  RunChoice choice;
  SamplingOptions sampling;
  std::string prompt, file, system;
  bool has_prompt = false, raw = false, chat = false, dry_run = false, quiet = false;
};

int dry_run(const RunArguments& arguments) {
  const RunChoice& choice = arguments.choice;
  const auto plan = [&]() -> Result<Plan> {
    WINNOW_TRY_ASSIGN(const DeviceInfo device, parse_device(choice.device));
    WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(choice.model));
    return make_plan(checkpoint, device, choice.plan_options());
  }();
  if (!plan.ok()) return fail("run", plan.status());
  return finish(printable(to_text(*plan)), plan->can_run() ? kOk : kCannotRun);
}

int fail_with(const Generation* generation, const Status& status) {
  const int exit = fail("run", status);
  return generation != nullptr && generation->refused() ? kCannotRun : exit;
}

// Before anything is loaded: a model of 400 GB must not come first.
Status check_length(const RunArguments& arguments, int64_t prompt, int64_t context) {
  if (context <= 0 || prompt < context) return {};
  return error(StatusCode::invalid_argument, "the prompt has ", prompt, " tokens, the context has ", context,
               arguments.choice.context > 0 ? "; raise --context or shorten the document"
                                            : " and one must be free for the answer; shorten the document");
}

std::vector<Turn> first_turns(const RunArguments& arguments) {
  std::vector<Turn> turns;
  if (!arguments.system.empty()) turns.push_back({Turn::Role::system, arguments.system});
  return turns;
}

int status_of(const Generation::Answer& answer) {
  if (answer.output_closed) return kFailure;
  return answer.finish == Finish::cancelled ? kInterrupted : kOk;
}

// One prompt --------------------------------------------------------------------------------------------------------

int run_once(const RunArguments& arguments, Generation& generation) {
  const Result<std::string> text = document_and_prompt(arguments.file, arguments.prompt);
  if (!text.ok()) return fail("run", text.status());
  std::vector<Turn> turns = first_turns(arguments);
  turns.push_back({Turn::Role::user, *text});
  const Result<std::vector<int32_t>> prompt = generation.encode(turns);
  if (!prompt.ok()) return fail("run", prompt.status());
  const auto tokens = static_cast<int64_t>(prompt->size());
  const int64_t limit = arguments.choice.context > 0 ? arguments.choice.context : generation.model_context();
  if (const Status fits = check_length(arguments, tokens, limit); !fits.ok()) return fail("run", fits);

  if (const Status loaded = generation.load(tokens + arguments.sampling.max_tokens); !loaded.ok()) {
    return fail_with(&generation, loaded);
  }
  const Result<Generation::Answer> answer = generation.answer(*prompt, arguments.sampling);
  if (!answer.ok()) return fail("run", answer.status());
  if (!arguments.quiet && !answer->output_closed) print_error("\n" + generation.statistics(answer->finish));
  return status_of(*answer);
}

// A conversation ----------------------------------------------------------------------------------------------------

// One line of the user; false at the end of the input or on /exit.
bool read_line(std::string& line) {
  const bool interactive = ::isatty(STDIN_FILENO) != 0;
  for (;;) {
    if (interactive) print_error("> ");
    if (interrupted() || !std::getline(std::cin, line)) {
      if (interactive) print_error("\n");
      return false;
    }
    if (line == "/exit") return false;
    if (!line.empty()) return true;
  }
}

int chat(const RunArguments& arguments, Generation& generation) {
  std::vector<Turn> turns = first_turns(arguments);
  std::string document;
  if (!arguments.file.empty()) {
    const Result<std::string> text = document_and_prompt(arguments.file, "");
    if (!text.ok()) return fail("run", text.status());
    document = *text + "\n";
  }
  if (const Status loaded = generation.load(0); !loaded.ok()) return fail_with(&generation, loaded);
  std::string line = arguments.prompt;
  Finish finish = Finish::running;
  int last = kOk;  // exit status of the last line
  while (!line.empty() || read_line(line)) {
    if (const Status text = utf8::check(line).in("this line"); !text.ok()) {
      print_error(concat("winnow run: ", text.message(), "\n"));
      line.clear();
      continue;
    }
    turns.push_back({Turn::Role::user, document + line});
    line.clear();
    const Result<std::vector<int32_t>> prompt = generation.encode(turns);
    if (!prompt.ok()) return fail("run", prompt.status());
    const Result<Generation::Answer> answer = generation.answer(*prompt, arguments.sampling);
    if (!answer.ok()) {
      last = fail("run", answer.status());
      if (answer.status().code() != StatusCode::invalid_argument) return last;
      turns.pop_back();  // too long for the context, say: the conversation goes on without this line
      continue;
    }
    last = kOk;
    finish = answer->finish;
    if (answer->output_closed || finish == Finish::cancelled) return status_of(*answer);
    turns.push_back({Turn::Role::assistant, answer->text});
    document.clear();
  }
  if (!arguments.quiet && finish != Finish::running) print_error("\n" + generation.statistics(finish));
  return interrupted() ? kInterrupted : last;
}

int run_command(const RunArguments& arguments) {
  if (const Status ready = prepare(arguments.choice.plugins, arguments.choice.threads); !ready.ok()) {
    return fail("run", ready);
  }
  if (arguments.dry_run) return dry_run(arguments);
  if (arguments.choice.device != "this") {
    return fail("run", error(StatusCode::invalid_argument, "--device \"", arguments.choice.device,
                             "\" describes another machine; it goes with --dry-run or `winnow plan`"));
  }
  if (!arguments.chat && !arguments.has_prompt && arguments.file.empty()) {
    return fail("run", error(StatusCode::invalid_argument, "nothing to answer; give --prompt, --file or --chat"));
  }
  catch_interrupts();
  install_progress_bar();
  Result<std::unique_ptr<Generation>> generation = Generation::open(arguments.choice, arguments.raw);
  if (!generation.ok()) return fail("run", generation.status());
  return arguments.chat ? chat(arguments, **generation) : run_once(arguments, **generation);
}

// Options -----------------------------------------------------------------------------------------------------------

constexpr const char* kFooter =
    "\nThe prompt is wrapped in the prompt shape of the model, taken from its chat template; --raw sends the text as "
    "it\n"
    "is, special tokens parsed. --file puts a document and a newline in front of the prompt, as one user turn. The "
    "answer\n"
    "streams to stdout; progress, warnings and statistics go to stderr.\n"
    "--chat keeps the conversation and submits it whole each turn; /exit, end of input or Ctrl-C end it.\n"
    "The default is greedy: the same prompt gives the same text. With a temperature, the same seed does.\n"
    "\nExamples:\n"
    "  winnow run model.gguf --prompt \"Why is the sky blue?\"\n"
    "  winnow run model.gguf --file report.txt --prompt \"What was decided?\" --max-tokens 100\n"
    "  winnow run model.gguf --prompt \"A poem.\" --temperature 0.8 --top-p 0.95 --seed 7\n"
    "  winnow run model.gguf --raw --prompt \"def main():\" --stop \"def \" --quiet > completion.py\n"
    "  winnow run model.gguf --chat --context 32768 --cache fp8\n"
    "  winnow run model.gguf --dry-run --device \"2x h200\"\n";

void add_input_options(CLI::App& sub, RunArguments& a) {
  sub.add_option("--prompt", a.prompt, "Text to answer")->type_name("TEXT")->group("Input");
  sub.add_option("--file", a.file, "Document to put before the prompt")
      ->type_name("DOC")
      ->check(text_given())
      ->group("Input");
  sub.add_option("--system", a.system, "System text in front of the conversation")->type_name("TEXT")->group("Input");
  CLI::Option* raw = sub.add_flag("--raw", a.raw, "No prompt shape: the text as it is")->group("Input");
  sub.add_flag("--chat", a.chat, "Converse, reading lines from stdin")->group("Input")->excludes(raw);
}

void add_sampling_options(CLI::App& sub, SamplingOptions& s) {
  const auto add = [&sub](const char* name, auto& value, const char* help, const char* type, double least,
                          double most) {
    sub.add_option(name, value, help)->type_name(type)->check(number_between(least, most))->group("Sampling");
  };
  add("--temperature", s.temperature, "0 is greedy (default: 0)", "X", 0, 100);
  add("--top-k", s.top_k, "Sample from the K likeliest; 0 is off (default: 0)", "K", 0, 1e9);
  add("--top-p", s.top_p, "Sample from the likeliest that make up P; 1 is off (default: 1)", "P", 0, 1);
  add("--min-p", s.min_p, "Leave out what is less likely than P times the best (default: 0)", "P", 0, 1);
  add("--repetition-penalty", s.repetition_penalty, "Divides logits of tokens seen; 1 is off (default: 1)", "X", 0.01,
      100);
  sub.add_option("--seed", s.seed, "Seed of the sampler (default: 0)")
      ->type_name("N")
      ->check(whole_number())
      ->group("Sampling");
  add("--max-tokens", s.max_tokens, "Longest answer (default: 512)", "N", 1, 1e9);
  sub.add_option("--stop", s.stop, "End the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->check(utf8_text())
      ->allow_extra_args(false)
      ->group("Sampling");
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("run", "Answer a prompt, or converse");
  const auto arguments = std::make_shared<RunArguments>();
  add_model(*sub, arguments->choice.model);
  add_input_options(*sub, *arguments);
  add_sampling_options(*sub, arguments->sampling);
  add_context(*sub, arguments->choice);
  add_cache(*sub, arguments->choice);
  add_attention(*sub, arguments->choice);
  add_threads(*sub, arguments->choice);
  add_plugins(*sub, arguments->choice.plugins);
  sub->add_flag("--dry-run", arguments->dry_run, "Print the plan instead of running; exit status 3 when it says no");
  add_device(*sub, arguments->choice.device, "With --dry-run: the device to plan for (default: this)");
  sub->add_flag("--quiet", arguments->quiet, "No statistics at the end");
  sub->footer(kFooter);
  sub->callback([arguments, sub, &action] {
    arguments->has_prompt = sub->get_option("--prompt")->count() > 0;
    action = [arguments] { return run_command(*arguments); };
  });
}

}  // namespace winnow::cli
