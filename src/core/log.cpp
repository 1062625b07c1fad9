// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include <cstdio>
#include <mutex>

namespace winnow {
namespace {

struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& holder() {
  static SinkHolder instance;
  return instance;
}

// Errors alone: they come from a failed check, which ends the process, and must not end it without a word.
void default_sink(LogLevel level, std::string_view message) {
  if (level < LogLevel::error) return;
  std::fprintf(stderr, "error: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace

void set_log_sink(LogSink sink) {
  std::lock_guard lock(holder().mutex);
  holder().sink = std::move(sink);
}

void log(LogLevel level, std::string_view message) {
  std::lock_guard lock(holder().mutex);
  if (holder().sink) {
    holder().sink(level, message);
  } else {
    default_sink(level, message);
  }
}

}  // namespace winnow
