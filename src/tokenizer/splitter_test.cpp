// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/splitter.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>

#include "tokenizer/utf8.hpp"

namespace winnow {
namespace {

using Pieces = std::vector<std::string>;

Splitter make(const std::vector<std::string>& patterns) {
  auto splitter = Splitter::create(patterns);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  return std::move(splitter).value();
}

Pieces split(const Splitter& splitter, std::string_view text) {
  std::vector<std::string_view> pieces;
  const Status status = splitter.split(text, pieces);
  EXPECT_TRUE(status.ok()) << status.message();
  return Pieces(pieces.begin(), pieces.end());
}

constexpr const char* kGlm =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(Splitter, EmptyTextHasNoPieces) {
  EXPECT_EQ(split(make({kGlm}), ""), Pieces{});
  EXPECT_EQ(split(make({}), "as it is"), Pieces{"as it is"});
}

TEST(Splitter, GlmPatternCutsWordsNumbersAndSpaces) {
  const Splitter glm = make({kGlm});
  EXPECT_EQ(split(glm, "Hello, world!"), (Pieces{"Hello", ",", " world", "!"}));
  EXPECT_EQ(split(glm, "it's WE'VE"), (Pieces{"it", "'s", " WE", "'VE"}));
  EXPECT_EQ(split(glm, "12345678"), (Pieces{"123", "456", "78"}));
  EXPECT_EQ(split(glm, "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split(glm, "a  \n\n  b"), (Pieces{"a", "  \n\n", " ", " b"}));
  EXPECT_EQ(split(glm, "\u0e01\u0e33 \u6771\u4eac\u3000\u00e9"),
            (Pieces{"\u0e01\u0e33", " \u6771\u4eac", "\u3000\u00e9"}));
}

TEST(Splitter, GapsAreKeptAndLaterPatternsCutThem) {
  const Splitter digits_then_words = make({R"(\p{N}{1,3})", R"([a-z]+)"});
  EXPECT_EQ(split(digits_then_words, "ab1234-cd"), (Pieces{"ab", "123", "4", "-", "cd"}));
}

TEST(Splitter, LookaheadSeesThePieceAndNotItsNeighbours) {
  // The digit ends the first pattern's gap, so that the spaces before it are at the end of their piece.
  EXPECT_EQ(split(make({R"(\p{N})", R"(\s+(?!\S)|\s+)"}), "   1"), (Pieces{"   ", "1"}));
  EXPECT_EQ(split(make({R"(\s+(?!\S)|\s+|\p{N})"}), "   1"), (Pieces{"  ", " ", "1"}));
}

TEST(Splitter, EmptyMatchesCutNothing) {
  EXPECT_EQ(split(make({"x*"}), "axxb"), (Pieces{"a", "xx", "b"}));
  EXPECT_EQ(split(make({"(?=\u00e9)"}), "a\u00e9\u00e9"), (Pieces{"a\u00e9\u00e9"}));
}

TEST(Splitter, TranslatesWhatTheDialectsDisagreeOn) {
  // U+180E left Unicode's White_Space in version 6.3; PCRE2's \s still has it.
  EXPECT_EQ(split(make({R"(\s+)"}), "a\u180e b"), (Pieces{"a\u180e", " ", "b"}));
  EXPECT_EQ(split(make({R"([\s]+)"}), "a\u0085\u2028b"), (Pieces{"a", "\u0085\u2028", "b"}));
  EXPECT_EQ(split(make({R"(\h+)"}), "x0Fz"), (Pieces{"x", "0F", "z"}));
  EXPECT_EQ(split(make({R"(\\s)"}), "a\\sb"), (Pieces{"a", "\\s", "b"}));
  EXPECT_EQ(*translate_pattern(R"([[:alpha:]\]]\[)"), R"([[:alpha:]\]]\[)");
}

TEST(Splitter, RefusesWhatItCannotRun) {
  for (const char* pattern : {"(", "[a-z&&[^aeiou]]", "[[ab]c]", "[]a]", "[[:alpha", R"(\p{Nonsense})", "(?<=a+)b",
                              R"(\C)", "(((a{1,999}){1,999}){1,999}){1,999}", "a\xFF"}) {
    const auto splitter = Splitter::create({pattern});
    ASSERT_FALSE(splitter.ok()) << pattern;
    EXPECT_NE(splitter.status().message().find("pre-tokeniser pattern"), std::string::npos);
  }
  EXPECT_FALSE(Splitter::create({std::string(100000, 'a')}).ok());
}

TEST(Splitter, AnExplosivePatternGivesUpWithAnError) {
  const Splitter explosive = make({"(?:a|aa|a+)+$|(a+a+)+b"});
  std::vector<std::string_view> pieces;
  const Status status = explosive.split(std::string(5000, 'a') + "c", pieces);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.message().find("limit"), std::string::npos) << status.message();
}

TEST(Splitter, AMillionOfOneCharacterIsQuick) {
  const Splitter glm = make({kGlm});
  const auto start = std::chrono::steady_clock::now();
  for (const char* unit : {"a", " ", "\n", "7", "-", "\u4e00", " \n", "'", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    std::vector<std::string_view> pieces;
    const Status status = glm.split(text + "x", pieces);
    EXPECT_TRUE(status.ok()) << unit << ": " << status.message();
    EXPECT_FALSE(pieces.empty());
  }
  // Quadratic would be hours; the bound is wide so that sanitizers pass it.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Splitter, PiecesAreTheTextInOrder) {
  const Splitter glm = make({kGlm});
  EXPECT_TRUE(rc::check([&](const std::vector<uint32_t>& code_points) {
    std::string text;
    for (uint32_t c : code_points) utf8::append(text, c % 0xD800);
    std::string joined;
    for (const std::string& piece : split(glm, text)) {
      RC_ASSERT(!piece.empty());
      RC_ASSERT(!utf8::first_bad_byte(piece));
      joined += piece;
    }
    RC_ASSERT(joined == text);
  }));
}

}  // namespace
}  // namespace winnow
