// SPDX-License-Identifier: Apache-2.0
#include "core/progress.hpp"

#include <mutex>

namespace winnow {
namespace {
std::mutex sink_mutex;
ProgressSink current_sink;
}  // namespace

void set_progress_sink(ProgressSink sink) {
  std::lock_guard lock(sink_mutex);
  current_sink = std::move(sink);
}

void report_progress(std::string_view what, int64_t done, int64_t total, std::string_view unit) {
  std::lock_guard lock(sink_mutex);
  if (current_sink) current_sink(what, done, total, unit);
}

}  // namespace winnow
