// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/router.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace winnow::cpu {
namespace {

struct Chosen {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Chosen choose(const std::vector<float>& logits, const std::vector<float>& bias, const RouterOptions& options) {
  Chosen chosen{std::vector<int32_t>(options.experts_used), std::vector<float>(options.experts_used)};
  RouterScratch scratch;
  choose_experts(logits.data(), bias.empty() ? nullptr : bias.data(), static_cast<int64_t>(logits.size()), options,
                 scratch, chosen.ids.data(), chosen.weights.data());
  return chosen;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

TEST(Router, BiasMovesTheChoiceAndNotTheWeight) {
  const Chosen c = choose({0.0f, 1.0f, 2.0f, -1.0f}, {0, 0, 0, 5}, {.experts_used = 2, .scale = 2.5f});
  EXPECT_EQ((std::vector<int32_t>{3, 2}), c.ids);
  const float sum = sigmoid(-1) + sigmoid(2);
  EXPECT_FLOAT_EQ(2.5f * sigmoid(-1) / sum, c.weights[0]);
  EXPECT_FLOAT_EQ(2.5f * sigmoid(2) / sum, c.weights[1]);
}

TEST(Router, WithoutNormalisationWeightsAreChancesTimesScale) {
  const Chosen c = choose({0, 1}, {}, {.experts_used = 1, .normalise = false, .scale = 3});
  EXPECT_EQ(1, c.ids[0]);
  EXPECT_FLOAT_EQ(3 * sigmoid(1), c.weights[0]);
}

TEST(Router, SoftmaxGate) {
  const Chosen c = choose({0, std::log(3.0f)}, {}, {.sigmoid = false, .experts_used = 2, .normalise = false});
  EXPECT_EQ((std::vector<int32_t>{1, 0}), c.ids);
  EXPECT_FLOAT_EQ(0.75f, c.weights[0]);
  EXPECT_FLOAT_EQ(0.25f, c.weights[1]);
}

TEST(Router, TiesGoToTheLowerExpertAndNanIsLast) {
  EXPECT_EQ((std::vector<int32_t>{0, 1}), choose({1, 1, 1, 1}, {}, {.experts_used = 2}).ids);
  EXPECT_EQ((std::vector<int32_t>{2, 1}), choose({std::nanf(""), 0, 1}, {}, {.experts_used = 2}).ids);
}

// 256 experts in 8 groups of 32 consecutive ones. Group 1 has the single best expert and nothing else; groups 2 and 5
// have two good ones each and win by the sum of two.
TEST(Router, GroupsAreConsecutiveAndScoreTheirTwoBest) {
  std::vector<float> logits(256, -20.0f);
  logits[32] = 9;
  logits[64] = logits[95] = 3;
  logits[160] = logits[191] = 2;
  const RouterOptions options{.experts_used = 4, .groups = 8, .groups_used = 2};
  EXPECT_EQ((std::vector<int32_t>{64, 95, 160, 191}), choose(logits, {}, options).ids);
}

TEST(Router, GroupsScoreWithTheBias) {
  std::vector<float> bias(8, 0.0f);
  bias[6] = bias[7] = 1;
  const RouterOptions options{.experts_used = 2, .groups = 4, .groups_used = 1};
  EXPECT_EQ((std::vector<int32_t>{6, 7}), choose({3, 3, 0, 0, 0, 0, -3, -4}, bias, options).ids);
}

}  // namespace
}  // namespace winnow::cpu
