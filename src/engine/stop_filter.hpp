// SPDX-License-Identifier: Apache-2.0
// StopFilter: lets text through as soon as it cannot be the beginning of a stop string, and cuts it at the first one:
// the one that is complete first, and of those that are complete at once the one that began first. How the text is cut
// into pieces makes no difference.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow {

class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that became certain. After a stop string was found: nothing more, ever.
  [[nodiscard]] std::string push(std::string_view text);
  // What was held back, when the text ended for another reason.
  [[nodiscard]] std::string finish();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;  // none is empty
  std::string held_;                // a beginning of a stop string, at most
  bool stopped_ = false;
};

}  // namespace winnow
