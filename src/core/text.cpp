// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/concat.hpp"

namespace winnow {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right_aligned(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text.append(i == 0 ? "" : between).append(parts[i]);
  return text;
}

std::string plural(int64_t n, std::string_view what) { return concat(grouped(n), " ", what, n == 1 ? "" : "s"); }

// A double of 309 digits before the point fits, so nothing is ever cut.
std::string fixed(double value, int digits) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string scientific(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2e", value);
  return text.data();
}

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
