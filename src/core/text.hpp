// SPDX-License-Identifier: Apache-2.0
// Text for people: aligned columns, counted nouns, lists, numbers. Sizes are decimal, the exact count can stand beside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// Columns, in bytes. A text that is wider already stays whole.
[[nodiscard]] std::string padded(std::string text, std::size_t width);         // spaces behind
[[nodiscard]] std::string right_aligned(std::string text, std::size_t width);  // spaces in front

[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view between);
[[nodiscard]] std::string plural(int64_t n, std::string_view what);  // "1 token", "2,048 tokens"

[[nodiscard]] std::string fixed(double value, int digits);  // digits behind the point
[[nodiscard]] std::string scientific(double value);         // "1.23e-04"
[[nodiscard]] std::string short_number(double value);       // three significant digits: "0.0123", "4.56", "1,230"
[[nodiscard]] std::string grouped(int64_t value);           // "452,840,051,712"

[[nodiscard]] std::string short_bytes(int64_t bytes);                       // "452.8 GB", "95.2 KB", "512 B"
[[nodiscard]] std::string both_bytes(int64_t bytes);                        // "452.8 GB (452,840,051,712 B)"
[[nodiscard]] std::string short_rate(double per_second, const char* unit);  // "1.79 TB/s", "250 TFLOP/s"

}  // namespace winnow
