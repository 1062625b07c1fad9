// SPDX-License-Identifier: Apache-2.0
// The program `winnow`. Exceptions of the standard library and of CLI11 stop here.
#include <cstdio>
#include <exception>
#include <new>

#include "cli/app.hpp"
#include "cli/exit_status.hpp"

int main(int argc, char** argv) {
  try {
    return winnow::cli::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("winnow: out of memory\n", stderr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "winnow: internal error: %s; please report it with the command line\n", e.what());
  }
  return winnow::cli::kFailure;
}
