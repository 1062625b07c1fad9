// SPDX-License-Identifier: Apache-2.0
// The log sink: the one way out for messages of the library. It never writes to stdout or stderr by itself
// unless nobody has set a sink, in which case warnings and errors go to stderr.
#pragma once

#include <functional>
#include <string_view>

namespace winnow {

enum class LogLevel { debug, info, warning, error };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink for the whole process; an empty function restores the default. Safe from any thread.
void set_log_sink(LogSink sink);

void log(LogLevel level, std::string_view message);

}  // namespace winnow
