// SPDX-License-Identifier: Apache-2.0
// Text from a file, made fit for a message: quoted, without control bytes (a name must not drive the terminal), cut.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

[[nodiscard]] inline std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 120;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += text.size() > kShown ? "…\"" : "\"";
  return out;
}

// Exact matches: for an argument of namespace std the compiler otherwise finds std::quoted, which escapes nothing.
[[nodiscard]] inline std::string quoted(const std::string& text) { return quoted(std::string_view(text)); }
[[nodiscard]] inline std::string quoted(const char* text) { return quoted(std::string_view(text)); }

[[nodiscard]] inline bool has_control_bytes(std::string_view text) {
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) return true;
  }
  return false;
}

}  // namespace winnow
