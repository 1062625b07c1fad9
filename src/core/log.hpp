// SPDX-License-Identifier: Apache-2.0
// The log sink: the one way out for messages of the library. Without a sink nothing is written, except the values of a
// failed WINNOW_CHECK, which go to stderr before the process aborts.
#pragma once

#include <functional>
#include <string_view>

namespace winnow {

enum class LogLevel { debug, info, warning, error };  // error: a failed WINNOW_CHECK alone

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink for the whole process; an empty function takes it away. Safe from any thread; the sink is called
// from the thread that logs, one message at a time, and must not log itself.
void set_log_sink(LogSink sink);

void log(LogLevel level, std::string_view message);

}  // namespace winnow
