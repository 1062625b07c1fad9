// SPDX-License-Identifier: Apache-2.0
// The command line as a whole: options, help and the dispatch to one file per sub-command.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace winnow::cli {

// Parses, runs, returns the exit status. May throw what the standard library throws.
[[nodiscard]] int run_program(int argc, char** argv);

// Every option and sub-command of the program. The parsed sub-command puts what it will do into `action`.
using Action = std::function<int()>;
[[nodiscard]] std::unique_ptr<CLI::App> make_app(Action& action);

// One per sub-command, each in its own file.
void add_run(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_backends(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);

}  // namespace winnow::cli
