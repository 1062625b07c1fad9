// SPDX-License-Identifier: Apache-2.0
// Parts of the plan's JSON that other commands print too, so that one thing has one set of keys.
#pragma once

#include <nlohmann/json.hpp>

#include "select/select.hpp"

namespace winnow {

// {"operation", "chosen": a name or null, "verdicts": [{"backend", "built", "admitted", "refusals", "launch"}]};
// "launch" stands only in a verdict that admits.
[[nodiscard]] nlohmann::ordered_json json_of(const PathStep& step);

}  // namespace winnow
