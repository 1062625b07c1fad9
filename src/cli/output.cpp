// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/exit_status.hpp"
#include "cli/progress_bar.hpp"

namespace winnow::cli {
namespace {

// 0, or errno of the write that failed. EINTR is tried again: SIGINT must not tear a character apart.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

bool write_out(std::string_view text) {
  static bool closed = false;
  if (closed) return false;
  clear_progress_bar();
  const int failure = write_all(STDOUT_FILENO, text);
  if (failure == 0) return true;
  closed = true;
  if (failure != EPIPE && failure != EBADF) {
    print_error(concat("winnow: cannot write to stdout: ", std::strerror(failure), "\n"));
  }
  return false;
}

void print_error(std::string_view text) {
  clear_progress_bar();
  (void)write_all(STDERR_FILENO, text);
}

int fail(std::string_view command, const Status& status) {
  print_error(concat("winnow ", command, ": ", status.message(), "\n"));
  return status.code() == StatusCode::invalid_argument ? kUsage : kFailure;
}

int finish(std::string_view text, int status_when_written) { return write_out(text) ? status_when_written : kFailure; }

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace winnow::cli
