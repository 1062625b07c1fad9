// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace winnow {
namespace {

std::vector<double> frequencies(const SamplingOptions& options, const std::vector<float>& logits,
                                const std::vector<int32_t>& history = {}) {
  Sampler sampler(options);
  std::vector<double> counts(logits.size(), 0.0);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) counts[sampler.sample(logits, history)] += 1.0 / kDraws;
  return counts;
}

TEST(SamplingOptionsTest, RangesAreChecked) {
  EXPECT_TRUE(check(SamplingOptions{}).ok());
  const SamplingOptions bad[] = {
      {.temperature = -1},
      {.temperature = std::nanf("")},
      {.temperature = INFINITY},
      {.top_k = -1},
      {.top_p = 0},
      {.top_p = 1.5f},
      {.min_p = -0.1f},
      {.min_p = 1.1f},
      {.repetition_penalty = 0},
      {.max_tokens = 0},
      {.stop = {""}},
  };
  for (const SamplingOptions& options : bad) EXPECT_EQ(StatusCode::invalid_argument, check(options).code());
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfATie) {
  Sampler sampler({});
  EXPECT_EQ(1, sampler.sample(std::vector<float>{0, 2, 2, 1}, {}));
  EXPECT_EQ(0, sampler.sample(std::vector<float>{5}, {}));
}

TEST(SamplerTest, TemperatureOneFollowsTheSoftmax) {
  const std::vector<double> f = frequencies({.temperature = 1, .seed = 3}, {0, std::log(2.0f), std::log(5.0f)});
  EXPECT_NEAR(0.125, f[0], 0.01);
  EXPECT_NEAR(0.25, f[1], 0.01);
  EXPECT_NEAR(0.625, f[2], 0.01);
}

TEST(SamplerTest, TemperatureFlattensAndSharpens) {
  const std::vector<float> logits = {0, std::log(4.0f)};
  EXPECT_NEAR(2.0 / 3, frequencies({.temperature = 2}, logits)[1], 0.015) << "weights become square roots";
  EXPECT_NEAR(16.0 / 17, frequencies({.temperature = 0.5f}, logits)[1], 0.01) << "weights become squares";
}

TEST(SamplerTest, CutsKeepWhatTheySay) {
  // Probabilities 0.4, 0.3, 0.2, 0.1, not in order of id.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
  std::vector<double> f = frequencies({.temperature = 1, .top_k = 2}, logits);
  EXPECT_NEAR(4.0 / 7, f[1], 0.015);
  EXPECT_EQ(0, f[0] + f[2]);
  f = frequencies({.temperature = 1, .top_p = 0.6f}, logits);
  EXPECT_NEAR(4.0 / 7, f[1], 0.015) << "0.4 does not reach 0.6, 0.7 does";
  EXPECT_EQ(0, f[0] + f[2]);
  f = frequencies({.temperature = 1, .top_p = 0.01f}, logits);
  EXPECT_NEAR(1.0, f[1], 1e-9) << "the first always stays";
  f = frequencies({.temperature = 1, .min_p = 0.45f}, logits);
  EXPECT_NEAR(4.0 / 9, f[1], 0.015);
  EXPECT_NEAR(2.0 / 9, f[0], 0.015);
  EXPECT_EQ(0, f[2]) << "a quarter of the likeliest";
  EXPECT_NEAR(1.0, frequencies({.temperature = 1, .min_p = 1}, logits)[1], 1e-9);
}

TEST(SamplerTest, EqualLogitsAreCutInOrderOfId) {
  const std::vector<double> f = frequencies({.temperature = 1, .top_k = 2}, {1, 1, 1, 1});
  EXPECT_NEAR(0.5, f[0], 0.02);
  EXPECT_EQ(0, f[2] + f[3]);
}

TEST(SamplerTest, RepetitionPenaltyPushesDownOnceWhateverTheSign) {
  Sampler sampler({.repetition_penalty = 2});
  const std::vector<int32_t> history = {0, 0, 0, 1};
  EXPECT_EQ(2, sampler.sample(std::vector<float>{4, 3.9f, 2.1f}, history))
      << "4 / 2 < 2.1, once however often it stands";
  EXPECT_EQ(2, sampler.sample(std::vector<float>{-1, -1.2f, -1.5f}, history)) << "-1 * 2 < -1.5";
  EXPECT_EQ(0, sampler.sample(std::vector<float>{4, 3.9f, 1.9f}, history));
  EXPECT_EQ(0, sampler.sample(std::vector<float>{4, 3}, std::vector<int32_t>{-1, 7})) << "foreign ids are ignored";
}

TEST(SamplerTest, TheSeedDecidesAndDrawsAreCounted) {
  const std::vector<float> logits(50, 0.0f);
  const auto text = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids(30);
    for (int32_t& id : ids) id = sampler.sample(logits, {});
    return ids;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
  std::vector<int32_t> shifted = text(2);
  shifted.erase(shifted.begin());
  std::vector<int32_t> first = text(1);
  first.pop_back();
  EXPECT_NE(first, shifted) << "the next seed is not the same row, one later";
}

// The numbers themselves are fixed: a text made on one machine must come again on another.
TEST(UniformTest, IsFixedAndInRange) {
  EXPECT_EQ(uniform(0, 0), uniform(0, 0));
  std::set<double> seen;
  double sum = 0;
  for (uint64_t n = 0; n < 10000; ++n) {
    const double u = uniform(42, n);
    ASSERT_TRUE(u >= 0 && u < 1);
    seen.insert(u);
    sum += u;
  }
  EXPECT_EQ(10000u, seen.size());
  EXPECT_NEAR(0.5, sum / 10000, 0.01);
}

TEST(SamplerTest, AnyOptionsGiveATokenThatWasAllowed) {
  EXPECT_TRUE(rc::check("sampled tokens exist and top_k holds", [] {
    const auto raw = *rc::gen::nonEmpty<std::vector<int>>();
    std::vector<float> logits(raw.size());
    std::transform(raw.begin(), raw.end(), logits.begin(), [](int v) { return static_cast<float>(v % 50); });
    SamplingOptions options;
    options.temperature = static_cast<float>(*rc::gen::inRange(1, 300)) / 100;
    options.top_k = *rc::gen::inRange(0, 10);
    options.top_p = static_cast<float>(*rc::gen::inRange(1, 101)) / 100;
    options.min_p = static_cast<float>(*rc::gen::inRange(0, 101)) / 100;
    options.seed = *rc::gen::arbitrary<uint64_t>();
    Sampler sampler(options);
    const int32_t id = sampler.sample(logits, {});
    RC_ASSERT(id >= 0 && id < static_cast<int32_t>(logits.size()));
    int better = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      better += logits[i] > logits[id] || (logits[i] == logits[id] && static_cast<int32_t>(i) < id) ? 1 : 0;
    }
    RC_ASSERT(options.top_k == 0 || better < options.top_k);
  }));
}

}  // namespace
}  // namespace winnow
