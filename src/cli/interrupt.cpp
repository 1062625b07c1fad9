// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.hpp"

#include <csignal>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

extern "C" void on_interrupt(int) { asked_to_stop = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // Without SA_RESTART a read of the terminal ends; with SA_RESETHAND the second SIGINT kills.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return asked_to_stop != 0; }

}  // namespace winnow::cli
