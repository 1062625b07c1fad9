// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.hpp"

#include <array>

#include "tokenizer/tokenizer.hpp"

namespace winnow {
namespace utf8 {
namespace {

// What a lead byte promises: length and the range that its second byte must lie in (Unicode 15, table 3-7).
struct Lead {
  std::size_t bytes;
  uint8_t second_low, second_high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};  // a continuation byte, or an overlong form of ASCII
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // above are the surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // above is beyond U+10FFFF
  return {0, 0, 0};
}

constexpr std::array<uint8_t, 5> kLeadMask{0, 0x7F, 0x1F, 0x0F, 0x07};

}  // namespace

Decoded decode_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(at));
  if (lead.bytes == 0) return {};
  uint32_t code_point = byte(at) & kLeadMask[lead.bytes];
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (at + i == text.size()) return {false, true, i, 0};
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte(at + i) < low || byte(at + i) > high) return {false, false, i, 0};
    code_point = (code_point << 6) | (byte(at + i) & 0x3Fu);
  }
  return {true, false, lead.bytes, code_point};
}

std::optional<std::size_t> first_bad_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_at(text, at);
    if (!c.ok) return at;
    at += c.bytes;
  }
  return std::nullopt;
}

Status check(std::string_view text) {
  const auto bad = first_bad_byte(text);
  if (!bad) return {};
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<uint8_t>(text[*bad]);
  return error(StatusCode::invalid_argument, "the text is not UTF-8: byte ", *bad, " is 0x", kHex[byte >> 4],
               kHex[byte & 15], ", which begins no character; convert it first, for example with iconv -t utf-8");
}

void append(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    tail(12), tail(6), tail(0);
  }
}

}  // namespace utf8

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const utf8::Decoded c = utf8::decode_at(pending_, at);
    if (c.cut) break;
    if (c.ok) {
      out.append(pending_, at, c.bytes);
    } else {
      out += utf8::kReplacement;
    }
    at += c.bytes;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(utf8::kReplacement) : std::string();
}

}  // namespace winnow
