// SPDX-License-Identifier: Apache-2.0
// Exit statuses of every command; kExitStatusHelp is the same list in words, printed by --help.
#pragma once

namespace winnow::cli {

enum ExitStatus : int {
  kOk = 0,
  kFailure = 1,        // a file, the model, the device or the output failed
  kUsage = 2,          // an option, a path argument or a prompt has no meaning
  kCannotRun = 3,      // the plan says that the model cannot run on the device
  kDisagrees = 4,      // verify: the model runs but does not compute what the golden says
  kInterrupted = 130,  // SIGINT, as shells count it
};

inline constexpr const char* kExitStatusHelp =
    "Exit status:\n"
    "  0 success   1 failure (file, model, device, closed output)   2 usage error (option or prompt)\n"
    "  3 the plan says it cannot run   4 verify: does not agree   130 interrupted\n";

}  // namespace winnow::cli
