// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_ops.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/threads.hpp"

namespace winnow {
namespace {

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

Matrix matrix_of(const std::vector<float>& values, int64_t out, int64_t in) {
  return {.data = reinterpret_cast<const std::byte*>(values.data()), .out = out, .in = in, .row_bytes = in * 4};
}

class CpuOpsTest : public testing::Test {
 protected:
  std::unique_ptr<Ops> ops = make_cpu_ops({});
};

TEST_F(CpuOpsTest, MemoryIsZeroedAndComesBack) {
  Result<std::byte*> memory = ops->allocate(64);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(std::byte{0}, (*memory)[63]);
  const int32_t value = 7;
  ops->upload(*memory, &value, 4);
  int32_t back = 0;
  ops->download(&back, *memory, 4);
  EXPECT_EQ(7, back);
}

TEST_F(CpuOpsTest, RmsNormKeepsItsRules) {
  std::vector<float> x = {3, 4, 0, 0, 0, 0}, weight = {1, 2, 3}, out(6, -1);
  ops->rms_norm({x.data(), {2, 3}}, {weight.data(), {3}}, 1e-5f, {out.data(), {2, 3}});
  const float factor = 1.0f / std::sqrt(25.0f / 3 + 1e-5f);
  EXPECT_FLOAT_EQ(3 * factor, out[0]);
  EXPECT_FLOAT_EQ(2 * 4 * factor, out[1]);
  EXPECT_EQ((std::vector<float>{0, 0, 0}), (std::vector<float>(out.begin() + 3, out.end()))) << "a row of zeros";
}

TEST_F(CpuOpsTest, LayerNormRemovesTheMeanAndTakesABias) {
  std::vector<float> x = {1, 2, 3, 6}, weight = {1, 1, 2, 1}, bias = {0, 10, 0, 0}, out(4);
  ops->layer_norm({x.data(), {1, 4}}, {weight.data(), {4}}, {bias.data(), {4}}, 0, {out.data(), {1, 4}});
  const float deviation = std::sqrt((4.0f + 1 + 0 + 9) / 4);  // mean 3, biased variance
  EXPECT_FLOAT_EQ(-2 / deviation, out[0]);
  EXPECT_FLOAT_EQ(-1 / deviation + 10, out[1]);
  EXPECT_NEAR(0, out[2], 1e-7);
  ops->layer_norm({x.data(), {1, 4}}, {weight.data(), {4}}, {}, 0, {out.data(), {1, 4}});
  EXPECT_FLOAT_EQ(-1 / deviation, out[1]) << "without a bias";
}

TEST_F(CpuOpsTest, RopeLayoutsPairDifferentElements) {
  std::vector<float> x = {1, 2, 3, 4}, cos = {0, 1}, sin = {1, 0}, out(4);  // the first pair turns by 90 degrees
  const RowsIn in(x.data(), {1, 1, 4});
  ops->rope(in, {cos.data(), {1, 2}}, {sin.data(), {1, 2}}, RopeLayout::interleaved, {out.data(), {1, 1, 4}});
  EXPECT_EQ((std::vector<float>{-2, 1, 3, 4}), out);
  ops->rope(in, {cos.data(), {1, 2}}, {sin.data(), {1, 2}}, RopeLayout::half_split, {out.data(), {1, 1, 4}});
  EXPECT_EQ((std::vector<float>{-3, 2, 1, 4}), out);
}

// The angle is a float32 product, as the reference computes it: at a million positions it is not the double one.
TEST_F(CpuOpsTest, RopeAnglesAreFloat32) {
  const std::vector<int32_t> positions = {0, 1000003};
  const std::vector<float> frequencies = {0.7498942f};
  std::vector<float> cos(2), sin(2);
  ops->rope_angles({positions.data(), {2}}, {frequencies.data(), {1}}, 0.5f, {cos.data(), {2, 1}},
                   {sin.data(), {2, 1}});
  EXPECT_EQ(0.5f, cos[0]);
  EXPECT_EQ(0.0f, sin[0]);
  const float angle = 1000003.0f * 0.7498942f;
  EXPECT_FLOAT_EQ(0.5f * std::cos(angle), cos[1]);
  EXPECT_FLOAT_EQ(0.5f * std::sin(angle), sin[1]);
}

TEST_F(CpuOpsTest, HeadLinearGivesEachHeadItsMatrix) {
  const std::vector<float> w = random_values(3 * 5 * 8, 1), x = random_values(4 * 3 * 8, 2);
  std::vector<Matrix> heads;
  heads.reserve(3);
  for (int h = 0; h < 3; ++h) {
    heads.push_back(
        {.data = reinterpret_cast<const std::byte*>(w.data() + h * 40), .out = 5, .in = 8, .row_bytes = 32});
  }
  std::vector<float> out(4 * 3 * 5);
  ops->head_linear({x.data(), {4, 3, 8}}, heads, {out.data(), {4, 3, 5}});
  for (int t = 0; t < 4; ++t) {
    for (int h = 0; h < 3; ++h) {
      for (int o = 0; o < 5; ++o) {
        double sum = 0;
        for (int i = 0; i < 8; ++i) sum += static_cast<double>(w[h * 40 + o * 8 + i]) * x[(t * 3 + h) * 8 + i];
        ASSERT_NEAR(sum, out[(t * 3 + h) * 5 + o], 1e-5);
      }
    }
  }
}

// Experts against the formula, with an expert that nobody chose and one that everybody chose; the output is added to,
// and a token alone gives the bits that it gives in company.
TEST_F(CpuOpsTest, ExpertsAddTheirWeightedOutputs) {
  constexpr int64_t kTokens = 9, kHidden = 24, kWidth = 20, kExperts = 4, kUsed = 2;
  std::vector<std::vector<float>> store;
  std::vector<Matrix> gate, up, down;
  for (int e = 0; e < kExperts; ++e) {
    store.push_back(random_values(kWidth * kHidden, 10 + e));
    gate.push_back(matrix_of(store.back(), kWidth, kHidden));
    store.push_back(random_values(kWidth * kHidden, 20 + e));
    up.push_back(matrix_of(store.back(), kWidth, kHidden));
    store.push_back(random_values(kWidth * kHidden, 30 + e));
    down.push_back(matrix_of(store.back(), kHidden, kWidth));
  }
  const std::vector<float> x = random_values(kTokens * kHidden, 3), weights = random_values(kTokens * kUsed, 4);
  std::vector<int32_t> ids;
  for (int t = 0; t < kTokens; ++t) ids.insert(ids.end(), {2, t % 2 == 0 ? 0 : 3});
  std::vector<float> out(kTokens * kHidden, 1.0f);
  ops->experts({x.data(), {kTokens, kHidden}}, {ids.data(), {kTokens, kUsed}}, {weights.data(), {kTokens, kUsed}},
               {gate, up, down}, {out.data(), {kTokens, kHidden}});
  const auto row = [](const Matrix& w, int64_t o, const float* in) {
    double sum = 0;
    for (int64_t i = 0; i < w.in; ++i) sum += static_cast<double>(reinterpret_cast<const float*>(w.row(o))[i]) * in[i];
    return sum;
  };
  for (int t = 0; t < kTokens; ++t) {
    std::vector<double> wanted(kHidden, 1.0);
    for (int k = 0; k < kUsed; ++k) {
      const int e = ids[t * kUsed + k];
      std::vector<float> h(kWidth);
      for (int i = 0; i < kWidth; ++i) {
        const double g = row(gate[e], i, &x[t * kHidden]);
        h[i] = static_cast<float>(g / (1 + std::exp(-g)) * row(up[e], i, &x[t * kHidden]));
      }
      for (int i = 0; i < kHidden; ++i) wanted[i] += weights[t * kUsed + k] * row(down[e], i, h.data());
    }
    for (int i = 0; i < kHidden; ++i) ASSERT_NEAR(wanted[i], out[t * kHidden + i], 1e-3) << t << " " << i;
    std::vector<float> alone(kHidden, 1.0f);
    ops->experts({&x[t * kHidden], {1, kHidden}}, {&ids[t * kUsed], {1, kUsed}}, {&weights[t * kUsed], {1, kUsed}},
                 {gate, up, down}, {alone.data(), {1, kHidden}});
    ASSERT_EQ(alone, std::vector<float>(out.begin() + t * kHidden, out.begin() + (t + 1) * kHidden));
  }
}

TEST_F(CpuOpsTest, TheFirstValueThatIsNotFiniteIsRemembered) {
  std::vector<float> x = {1, 2, 3, std::nanf("")}, y = {std::numeric_limits<float>::infinity(), 0};
  ops->note_not_finite({x.data(), {1, 3}}, 4);
  Result<Ops::NotFinite> nothing = ops->finish();
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(-1, nothing->where);
  ops->note_not_finite({x.data(), {2, 2}}, 5);
  ops->note_not_finite({y.data(), {1, 2}}, 6);
  Result<Ops::NotFinite> first = ops->finish();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(5, first->where);
  EXPECT_EQ(1, first->row);
  EXPECT_EQ(-1, ops->finish()->where) << "finish() forgets";
}

TEST_F(CpuOpsTest, NoTokensIsNothing) {
  std::vector<float> weight(4, 1.0f);
  ops->rms_norm({nullptr, {0, 4}}, {weight.data(), {4}}, 1e-5f, {nullptr, {0, 4}});
  ops->swiglu({nullptr, {0, 4}}, {nullptr, {0, 4}}, {nullptr, {0, 4}});
  const Matrix gate = matrix_of(weight, 1, 4);
  ops->route({nullptr, {0, 4}}, gate, {}, {}, {nullptr, {0, 1}}, {nullptr, {0, 1}});
  ops->experts({nullptr, {0, 4}}, {nullptr, {0, 1}}, {nullptr, {0, 1}}, {{&gate, 1}, {&gate, 1}, {&gate, 1}},
               {nullptr, {0, 4}});
  EXPECT_TRUE(ops->finish().ok());
}

}  // namespace
}  // namespace winnow
