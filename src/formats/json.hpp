// SPDX-License-Identifier: Apache-2.0
// JSON from files we do not trust: parsed without exceptions, with a bound on nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace winnow {

struct JsonRules {
  int max_depth = 64;  // of objects and arrays inside each other
  // 0: duplicate keys are let through, the last one wins. n: two equal keys in the objects of depth 1 … n are an error.
  int unique_keys_to_depth = 0;
};

// corrupt_data naming the byte where the text stops being JSON, the nesting or the repeated key.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const JsonRules& rules = {});

// value[key] when value is an object that has it; null otherwise. Never throws, never inserts.
[[nodiscard]] const nlohmann::json* member(const nlohmann::json& value, std::string_view key);

// The string at value[key]; empty when absent or no string.
[[nodiscard]] std::string string_member(const nlohmann::json& value, std::string_view key);

}  // namespace winnow
