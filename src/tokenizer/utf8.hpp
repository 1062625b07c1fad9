// SPDX-License-Identifier: Apache-2.0
// UTF-8 as Unicode 15 table 3-7 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace winnow::utf8 {

// The character at `at`: `bytes` is its length when it is well formed. When not, `bytes` is the length of the part
// that could still have become a character (at least 1), and `cut` says that only the end of the text is missing.
struct Decoded {
  bool ok = false;
  bool cut = false;
  std::size_t bytes = 1;
  uint32_t code_point = 0;
};
[[nodiscard]] Decoded decode_at(std::string_view text, std::size_t at);

// Offset of the first byte that begins no well-formed character.
[[nodiscard]] std::optional<std::size_t> first_bad_byte(std::string_view text);

// invalid_argument naming the offset and the value of the first bad byte.
[[nodiscard]] Status check(std::string_view text);

void append(std::string& out, uint32_t code_point);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace winnow::utf8
