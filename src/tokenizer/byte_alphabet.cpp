// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.hpp"

#include <array>

#include "tokenizer/utf8.hpp"

namespace winnow {
namespace {

constexpr bool is_own_character(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

constexpr int kAlphabetEnd = 256 + 68;

constexpr std::array<int16_t, kAlphabetEnd> make_byte_of() {
  std::array<int16_t, kAlphabetEnd> byte_of{};
  for (auto& byte : byte_of) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) byte_of[is_own_character(byte) ? byte : next++] = static_cast<int16_t>(byte);
  return byte_of;
}

constexpr auto kByteOf = make_byte_of();
static_assert(kByteOf[0x120] == ' ' && kByteOf[kAlphabetEnd - 1] == 173);

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Decoded c = utf8::decode_at(text, at);
    if (!c.ok || c.code_point >= kAlphabetEnd || kByteOf[c.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[c.code_point]);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace winnow
