// SPDX-License-Identifier: Apache-2.0
#include "cli/app.hpp"

#include <csignal>

#include "cli/exit_status.hpp"
#include "cli/output.hpp"
#include "core/log.hpp"

namespace winnow::cli {
namespace {

constexpr const char* kFooter =
    "\nFive commands to a first answer:\n"
    "  winnow inspect  model.gguf                      what is in the file, what is missing\n"
    "  winnow plan     model.gguf                      can this machine run it, how far, how fast\n"
    "  winnow plan     model.gguf --device \"8x rtx-pro-6000\"\n"
    "  winnow run      model.gguf --prompt \"Hello\"     text on stdout, all else on stderr\n"
    "  winnow run      model.gguf --file report.txt --prompt \"What was decided?\"\n"
    "\nMODEL is a .gguf file, any shard of a split one, a .safetensors file, its index or a checkpoint folder.\n"
    "`winnow COMMAND --help` explains a command with examples.\n\n";

// A usage error: what is wrong, and where to read how it is right.
int usage_error(const CLI::App& app, const CLI::ParseError& e) {
  std::string command = "winnow";
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  const bool unknown = app.get_subcommands().empty() && app.remaining_size() > 0;
  std::string what = e.what();
  if (unknown) {  // not "A subcommand is required", which CLI11 says first
    const std::string word = app.remaining().front();
    what = concat("there is no ", word[0] == '-' ? "option " : "command ", word);
  }
  print_error(concat(command, ": ", printable(what), "\nRun `", command, " --help` for its options and examples.\n"));
  return kUsage;
}

}  // namespace

std::unique_ptr<CLI::App> make_app(Action& action) {
  auto app = std::make_unique<CLI::App>(
      "Winnow runs language models with sparse latent attention (GLM-5, DeepSeek-V3.2) from GGUF or safetensors\n"
      "files, and says beforehand how it will.",
      "winnow");
  app->set_version_flag("--version", std::string("winnow ") + WINNOW_VERSION, "Print the version and exit");
  app->set_help_flag("-h,--help", "Print this help and exit");
  app->get_formatter()->column_width(34);
  app->get_formatter()->label("REQUIRED", "(required)");
  app->require_subcommand(1);
  app->footer(std::string(kFooter) + kExitStatusHelp);
  add_run(*app, action);
  add_plan(*app, action);
  add_inspect(*app, action);
  add_backends(*app, action);
  add_verify(*app, action);
  add_convert(*app, action);
  add_tokenize(*app, action);
  add_completion(*app, action);
  return app;
}

int run_program(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout is a failed write, which every command reports by its exit status
  set_log_sink([](LogLevel level, std::string_view message) {
    if (level < LogLevel::warning) return;
    print_error(concat("winnow: ", level == LogLevel::error ? "error: " : "warning: ", printable(message), "\n"));
  });
  Action action;
  const auto app = make_app(action);
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return write_out(app->help()) ? kOk : kFailure;  // of the sub-command, when there is one
  } catch (const CLI::CallForVersion& e) {
    return write_out(concat(e.what(), "\n")) ? kOk : kFailure;
  } catch (const CLI::ParseError& e) {
    return usage_error(*app, e);
  }
  return action();
}

}  // namespace winnow::cli
