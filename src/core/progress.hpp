// SPDX-License-Identifier: Apache-2.0
// Progress of anything that may take over two seconds. The library reports; whoever set the sink draws.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace winnow {

// what: "prefill", "convert"; done and total in `unit`s. Called often and from one thread at a time: a sink must be
// cheap, and decides itself whether a terminal is there to draw on.
using ProgressSink = std::function<void(std::string_view what, int64_t done, int64_t total, std::string_view unit)>;

void set_progress_sink(ProgressSink sink);
void report_progress(std::string_view what, int64_t done, int64_t total, std::string_view unit);

}  // namespace winnow
