// SPDX-License-Identifier: Apache-2.0
// Numbers for people: decimal units with the exact count beside.
#pragma once

#include <cstdint>
#include <string>

namespace winnow {

[[nodiscard]] std::string grouped(int64_t value);      // "452,840,051,712"
[[nodiscard]] std::string short_bytes(int64_t bytes);  // "452.8 GB", "95.2 KB", "512 B"
[[nodiscard]] std::string both_bytes(int64_t bytes);   // "452.8 GB (452,840,051,712 B)"
[[nodiscard]] std::string short_number(double value);  // three significant digits: "0.0123", "4.56", "1,230"
[[nodiscard]] std::string short_rate(double per_second, const char* unit);  // "1.79 TB/s", "250 TFLOP/s"

}  // namespace winnow
