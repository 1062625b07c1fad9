// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_filter.hpp"

#include <algorithm>
#include <utility>

namespace winnow {
namespace {

// Length of the longest end of text that begins stop, all of stop excluded.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t begin = held_.size(), end = std::string::npos, hold = 0;
  for (const std::string& stop : stops_) {
    hold = std::max(hold, overlap(held_, stop));
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    begin = at + stop.size() < end ? at : std::min(begin, at);
    end = at + stop.size();
  }
  stopped_ = end != std::string::npos;
  std::string certain = held_.substr(0, stopped_ ? begin : held_.size() - hold);
  held_.erase(0, stopped_ ? held_.size() : certain.size());
  return certain;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace winnow
