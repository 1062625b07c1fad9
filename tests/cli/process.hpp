// SPDX-License-Identifier: Apache-2.0
// Runs a program as a user's shell would and returns what it said. No shell in between, so that any bytes pass.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace winnow::test {

struct Ran {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out, err;
};

struct RunSetup {
  std::string input;           // of stdin
  bool close_stdout = false;   // stdout is a closed descriptor
  bool broken_pipe = false;    // stdout is a pipe that nobody reads
  int interrupt_after_ms = 0;  // SIGINT that long after the first byte of output; 0: never
};

[[nodiscard]] Ran run(const std::vector<std::string>& arguments, const RunSetup& setup = {});

}  // namespace winnow::test
