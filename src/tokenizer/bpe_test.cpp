// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace winnow {
namespace {

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  tokens.reserve(256);
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

Bpe make(const std::vector<Bpe::Merge>& merges, std::vector<std::string> more = {}, bool ignore_merges = false) {
  std::vector<std::string> tokens = all_bytes();
  for (const auto& [left, right] : merges) {
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) tokens.push_back(left + right);
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  auto bpe = Bpe::create(tokens, merges, ignore_merges);
  EXPECT_TRUE(bpe.ok()) << bpe.status().message();
  return std::move(bpe).value();
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view piece) {
  std::vector<int32_t> ids;
  const Status status = bpe.encode(piece, ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Bpe, EmptyAndSingleBytes) {
  const Bpe bpe = make({});
  EXPECT_EQ(encode(bpe, ""), Ids{});
  EXPECT_EQ(encode(bpe, "a"), Ids{'a'});
  EXPECT_EQ(encode(bpe, std::string_view("\0\xFF", 2)), (Ids{0, 255}));
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Bpe bpe = make({{"b", "c"}, {"a", "b"}});
  EXPECT_EQ(encode(bpe, "abc"), (Ids{'a', 256}));  // bc has the lower rank
  EXPECT_EQ(encode(bpe, "ab"), Ids{257});
  const Bpe pairs = make({{"a", "a"}});
  EXPECT_EQ(encode(pairs, "aaa"), (Ids{256, 'a'}));
  EXPECT_EQ(encode(pairs, "aaaaa"), (Ids{256, 256, 'a'}));
}

TEST(Bpe, WholePiecesAreTakenOnlyWithIgnoreMerges) {
  const std::vector<Bpe::Merge> merges = {{"b", "c"}};
  EXPECT_EQ(encode(make(merges, {"abc"}, true), "abc"), Ids{257});
  EXPECT_EQ(encode(make(merges, {"abc"}, false), "abc"), (Ids{'a', 256}));
}

TEST(Bpe, ContradictionsAreNamed) {
  std::vector<std::string> tokens = all_bytes();
  tokens.push_back("a");
  const auto twice = Bpe::create(tokens, {}, false);
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("97 and 256"), std::string::npos) << twice.status().message();
  const auto missing = Bpe::create(all_bytes(), {{"a", "b"}}, false);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("no token \"ab\""), std::string::npos) << missing.status().message();
}

TEST(Bpe, AMissingByteIsAnErrorNotACrash) {
  auto bpe = Bpe::create({"t0", "t1"}, {}, true);
  ASSERT_TRUE(bpe.ok());
  std::vector<int32_t> ids;
  EXPECT_TRUE(bpe->encode("t1", ids).ok());
  EXPECT_EQ(bpe->encode("x", ids).code(), StatusCode::corrupt_data);
}

// The definition, quadratic: merge the lowest-ranked adjacent pair, leftmost first, until none is left.
std::vector<std::string> by_definition(const std::vector<Bpe::Merge>& merges, std::string_view piece) {
  std::vector<std::string> parts;
  for (char c : piece) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) best = rank, at = i;
      }
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, AgreesWithTheDefinition) {
  EXPECT_TRUE(
      rc::check([](const std::vector<std::pair<uint8_t, uint8_t>>& choices, const std::vector<uint8_t>& letters) {
        std::vector<std::string> parts = {"a", "b", "c"};
        std::vector<Bpe::Merge> merges;
        for (const auto& [left, right] : choices) {
          const Bpe::Merge merge{parts[left % parts.size()], parts[right % parts.size()]};
          if (merge.first.size() + merge.second.size() > 8) continue;
          if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
          merges.push_back(merge);
          const std::string sum = merge.first + merge.second;
          if (std::find(parts.begin(), parts.end(), sum) == parts.end()) parts.push_back(sum);
        }
        std::string piece;
        for (uint8_t letter : letters) piece += static_cast<char>('a' + letter % 3);
        std::vector<std::string> tokens = all_bytes();
        for (std::size_t i = 3; i < parts.size(); ++i) tokens.push_back(parts[i]);
        const Bpe bpe = make(merges);
        std::vector<std::string> got;
        auto rebuilt = Bpe::create(tokens, merges, false);
        RC_ASSERT(rebuilt.ok());
        std::vector<int32_t> ids;
        RC_ASSERT(rebuilt->encode(piece, ids).ok());
        got.reserve(ids.size());
        for (int32_t id : ids) got.push_back(tokens[static_cast<std::size_t>(id)]);
        RC_ASSERT(got == by_definition(merges, piece));
      }));
}

TEST(Bpe, AMegabyteOfOneLetterMerges) {
  std::vector<Bpe::Merge> merges;
  for (std::string run = "a"; run.size() < 64; run += run) merges.emplace_back(run, run);
  const Bpe bpe = make(merges);
  EXPECT_EQ(encode(bpe, std::string(1 << 20, 'a')).size(), (1u << 20) / 64);
}

}  // namespace
}  // namespace winnow
