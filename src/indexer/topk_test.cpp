// SPDX-License-Identifier: Apache-2.0
#include "indexer/topk.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace winnow {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The order once more, in words instead of bits.
bool before(float a, int32_t pa, float b, int32_t pb) {
  const bool nan_a = a != a, nan_b = b != b;
  if (nan_a != nan_b) return nan_b;
  if (!nan_a && a != b) return a > b;
  return pa < pb;
}

std::vector<int32_t> sorted_topk(const std::vector<float>& scores, int64_t topk) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return before(scores[static_cast<std::size_t>(a)], a, scores[static_cast<std::size_t>(b)], b);
  });
  order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(topk)));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> running_topk(const std::vector<float>& scores, int64_t topk, int64_t tile) {
  RunningTopK selector;
  selector.reset(topk);
  for (int64_t i = 0; i < static_cast<int64_t>(scores.size()); i += tile) {
    selector.push(scores.data() + i, std::min(tile, static_cast<int64_t>(scores.size()) - i), static_cast<int32_t>(i));
  }
  const auto chosen = selector.finish();
  return {chosen.begin(), chosen.end()};
}

TEST(TopK, NothingPushedGivesNothing) { EXPECT_TRUE(running_topk({}, 5, 8).empty()); }

TEST(TopK, FewerThanTopkGivesAll) {
  EXPECT_EQ(running_topk({kNaN, -kInf, 1.0f}, 5, 2), (std::vector<int32_t>{0, 1, 2}));
}

TEST(TopK, NaNIsBelowMinusInfinityWhateverItsSignAndPayload) {
  const float negative_nan = std::bit_cast<float>(0xFFC12345u);
  EXPECT_EQ(running_topk({kNaN, -kInf, negative_nan, -kInf}, 2, 4), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(running_topk({negative_nan, kNaN, negative_nan}, 2, 4), (std::vector<int32_t>{0, 1}));
}

TEST(TopK, MinusZeroEqualsZero) {
  EXPECT_EQ(running_topk({-0.0f, 0.0f, -0.0f, 0.0f}, 2, 4), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(running_topk({0.0f, -0.0f, 0.0f}, 2, 4), (std::vector<int32_t>{0, 1}));
}

TEST(TopK, KeyOrderIsTheContractsOrder) {
  const float values[] = {kInf, 3.4e38f, 1.0f, 1e-45f, 0.0f, -1e-45f, -1.0f, -3.4e38f, -kInf, kNaN};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i) {
    EXPECT_LT(topk_key(values[i], 9), topk_key(values[i + 1], 0)) << values[i] << " before " << values[i + 1];
  }
  EXPECT_EQ(topk_position(topk_key(-2.5f, 1234567)), 1234567);
}

// Long rows that overflow any candidate buffer: every one of these has more candidates than the slab.
TEST(TopK, EqualAscendingDescendingAndTwoValuedRowsAreExact) {
  constexpr int64_t kCount = 50000;
  for (int64_t topk : {1, 64, 2048}) {
    std::vector<float> equal(kCount, 1.5f), ascending(kCount), descending(kCount), two(kCount), border(kCount, 1.0f);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ascending[at] = static_cast<float>(i);
      descending[at] = static_cast<float>(-i);
      two[at] = static_cast<float>(i * 2654435761 % 7 % 2);
      if (i % 40 == 3) border[at] = 2.0f;
    }
    for (const auto& scores : {equal, ascending, descending, two, border}) {
      EXPECT_EQ(running_topk(scores, topk, 48), sorted_topk(scores, topk)) << "topk " << topk;
    }
  }
}

// Values from few classes, so that ties, zeros, NaN and infinities meet.
std::vector<float> any_scores() {
  const auto bits = rc::gen::map(rc::gen::arbitrary<uint32_t>(), [](uint32_t b) { return std::bit_cast<float>(b); });
  const auto special = rc::gen::element(kNaN, -kNaN, kInf, -kInf, 0.0f, -0.0f, 1.0f, -1.0f, 1e-45f);
  const auto small = rc::gen::map(rc::gen::inRange(0, 4), [](int v) { return static_cast<float>(v); });
  return *rc::gen::scale(30.0, rc::gen::container<std::vector<float>>(rc::gen::oneOf(bits, special, small)));
}

TEST(TopK, EqualsAFullSortForAnyFloats) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<float> scores = any_scores();
    const auto topk = *rc::gen::inRange<int64_t>(1, 2000);
    const auto tile = *rc::gen::inRange<int64_t>(1, 100);
    RC_ASSERT(running_topk(scores, topk, tile) == sorted_topk(scores, topk));
  }));
}

TEST(TopK, MergingSelectorsOfPartsEqualsTheWhole) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<float> scores = any_scores();
    const auto count = static_cast<int64_t>(scores.size());
    const auto topk = *rc::gen::inRange<int64_t>(1, 100);
    const auto cut = *rc::gen::inRange<int64_t>(0, count + 1);
    RunningTopK low, high;
    low.reset(topk);
    high.reset(topk);
    low.push(scores.data(), cut, 0);
    high.push(scores.data() + cut, count - cut, static_cast<int32_t>(cut));
    high.push(low);  // the later part first: order of arrival must not matter
    const auto chosen = high.finish();
    RC_ASSERT(std::vector<int32_t>(chosen.begin(), chosen.end()) == sorted_topk(scores, topk));
  }));
}

TEST(TopK, ResetForgetsEverything) {
  RunningTopK selector;
  selector.reset(2);
  const float first[] = {5, 6, 7};
  selector.push(first, 3, 0);
  EXPECT_EQ(selector.finish()[0], 1);
  selector.reset(1);
  const float second[] = {-3};
  selector.push(second, 1, 9);
  ASSERT_EQ(selector.finish().size(), 1u);
  EXPECT_EQ(selector.finish()[0], 9);
}

}  // namespace
}  // namespace winnow
