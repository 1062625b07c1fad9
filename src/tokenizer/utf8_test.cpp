// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow {
namespace {

TEST(Utf8, KnowsTheEdgesOfTheTable) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_FALSE(utf8::first_bad_byte(good)) << good;
  }
  const std::pair<std::string, std::size_t> bad[] = {
      {"\x80", 0},         {"ab\xC0\xAF", 2}, {"\xC1\xBF", 0},         {"\xE0\x9F\xBF", 0},
      {"\xED\xA0\x80", 0}, {"x\xE2\x82", 1},  {"\xF0\x8F\xBF\xBF", 0}, {"\xF4\x90\x80\x80", 0},
      {"\xF5", 0},         {"\xFF", 0},       {"caf\xE9 au", 3}};
  for (const auto& [text, at] : bad) EXPECT_EQ(utf8::first_bad_byte(text), at) << text;
}

TEST(Utf8, AnErrorNamesTheByteAndItsValue) {
  const Status status = utf8::check("caf\xE9 au lait");
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("byte 3 is 0xe9"), std::string::npos) << status.message();
}

TEST(Utf8, DecodingUndoesAppending) {
  for (uint32_t c : {0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    utf8::append(text, c);
    const utf8::Decoded decoded = utf8::decode_at(text, 0);
    EXPECT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.code_point, c);
    EXPECT_EQ(decoded.bytes, text.size());
  }
}

TEST(Utf8Stream, HoldsHalfACharacterBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80!"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, BrokenAndUnfinishedBytesBecomeReplacements) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("\xE2\x28"), "\xEF\xBF\xBD(");
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AnyBytesInAnyPartsGiveTheSameValidText) {
  EXPECT_TRUE(rc::check([](const std::string& bytes, const std::vector<uint8_t>& cuts) {
    Utf8Stream whole, parts;
    std::string expected = whole.push(bytes);
    expected += whole.finish();
    RC_ASSERT(!utf8::first_bad_byte(expected));
    std::string got;
    std::size_t at = 0;
    for (uint8_t cut : cuts) {
      const std::string piece = bytes.substr(at, cut % 4);
      at += piece.size();
      got += parts.push(piece);
      RC_ASSERT(!utf8::first_bad_byte(got));
    }
    got += parts.push(bytes.substr(at));
    got += parts.finish();
    RC_ASSERT(got == expected);
  }));
}

TEST(ByteAlphabet, MapsTheKnownOnesAndRefusesTheRest) {
  EXPECT_EQ(bytes_from_alphabet(""), "");
  EXPECT_EQ(bytes_from_alphabet("\u0120the"), " the");
  EXPECT_EQ(bytes_from_alphabet("\u010a"), "\n");
  EXPECT_EQ(bytes_from_alphabet("\u0100"), std::string(1, '\0'));
  EXPECT_EQ(bytes_from_alphabet("\u0143"), "\xAD");
  EXPECT_EQ(bytes_from_alphabet("\u00e9"), "\xE9");
  for (const char* foreign : {" ", "\n", "\u0144", "\uff5c", "\xFF"}) EXPECT_FALSE(bytes_from_alphabet(foreign));
}

}  // namespace
}  // namespace winnow
