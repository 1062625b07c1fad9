// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/exit_status.hpp"
#include "cli/progress_bar.hpp"
#include "tokenizer/utf8.hpp"

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

std::string printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded c = utf8::decode_at(text, at);
    const auto byte = static_cast<uint8_t>(text[at]);
    // U+0080 to U+009F are control characters too.
    const bool control = c.ok && ((c.code_point < 0x20 && byte != '\n' && byte != '\t') ||
                                  (c.code_point >= 0x7F && c.code_point < 0xA0));
    const std::size_t bytes = c.ok ? c.bytes : 1;
    if (c.ok && !control) {
      out += text.substr(at, bytes);
    } else {
      for (std::size_t i = at; i < at + bytes; ++i) {
        const auto bad = static_cast<uint8_t>(text[i]);
        out += {'\\', 'x', kHex[bad >> 4], kHex[bad & 15]};
      }
    }
    at += bytes;
  }
  return out;
}

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
  constexpr std::size_t kMostBytes = 4000;  // a value of a hostile file may have megabytes
  const std::string_view whole = status.message();
  std::string message = printable(whole.substr(0, kMostBytes));
  if (whole.size() > kMostBytes) message += "…";
  print_error(concat("winnow ", command, ": ", message, "\n"));
  return status.code() == StatusCode::invalid_argument ? kUsage : kFailure;
}

int finish(std::string_view text, int status_when_written) { return write_out(text) ? status_when_written : kFailure; }

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace winnow::cli
