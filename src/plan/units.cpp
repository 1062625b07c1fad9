// SPDX-License-Identifier: Apache-2.0
#include "plan/units.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "core/concat.hpp"

namespace winnow {
namespace {

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > first && (digits.size() - at) % 3 == 0) text.push_back(',');
    text.push_back(digits[at]);
  }
  return text;
}

std::string short_bytes(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && std::abs(value) >= 999.95) {
    value /= 1000;
    ++unit;
  }
  return concat(fixed(value, unit == 0 ? 0 : 1), " ", kUnits[unit]);
}

std::string both_bytes(int64_t bytes) { return concat(short_bytes(bytes), " (", grouped(bytes), " B)"); }

std::string short_number(double value) {
  if (!std::isfinite(value)) return "?";
  if (value >= 999.5) return grouped(static_cast<int64_t>(std::llround(value)));
  const int magnitude = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fixed(value, std::min(6, std::max(0, 2 - magnitude)));
}

std::string short_rate(double per_second, const char* unit) {
  constexpr std::array<const char*, 6> kPrefixes = {"", "K", "M", "G", "T", "P"};
  double value = per_second;
  std::size_t prefix = 0;
  while (prefix + 1 < kPrefixes.size() && value >= 999.5) {
    value /= 1000;
    ++prefix;
  }
  return concat(short_number(value), " ", kPrefixes[prefix], unit);
}

}  // namespace winnow
