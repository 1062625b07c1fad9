// SPDX-License-Identifier: Apache-2.0
// Where a command speaks: results to stdout, everything else to stderr.
#pragma once

#include <string>
#include <string_view>

#include "core/status.hpp"

namespace winnow::cli {

// Writes all of it. False when stdout is closed or full; a full disk is said once on stderr, a closed pipe is not:
// whoever closed it knows. Once false, always false.
[[nodiscard]] bool write_out(std::string_view text);

// To stderr, clearing a progress bar first. Failures are ignored: there is nowhere left to say them.
void print_error(std::string_view text);

// Text fit for a terminal: control characters other than newline and tab, and bytes that are no UTF-8, become \xNN.
// Names in a file must not drive the terminal.
[[nodiscard]] std::string printable(std::string_view text);

// Prints "winnow COMMAND: message" and returns the exit status for it.
[[nodiscard]] int fail(std::string_view command, const Status& status);

// write_out as the whole result of a command.
[[nodiscard]] int finish(std::string_view text, int status_when_written);

[[nodiscard]] bool stderr_is_terminal();

}  // namespace winnow::cli
