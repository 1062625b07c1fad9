// SPDX-License-Identifier: Apache-2.0
#include "verify/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace winnow {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Compare, ArgmaxAndGap) {
  EXPECT_EQ(argmax_of(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_DOUBLE_EQ(top_two_gap(std::vector<float>{1, 3, 2.5f}), 0.5);
  EXPECT_DOUBLE_EQ(top_two_gap(std::vector<float>{3, 3}), 0);
  EXPECT_DOUBLE_EQ(top_two_gap(std::vector<float>{3}), 0);
}

TEST(Compare, NllOfUniformLogitsIsTheLogOfTheirNumber) {
  EXPECT_NEAR(nll_of(std::vector<float>(8, 5.0f), 3), std::log(8.0), 1e-12);
  EXPECT_NEAR(nll_of(std::vector<float>{1000, 0}, 0), 0, 1e-12);
}

TEST(Compare, LogitErrorsAreRelativeToTheLargestGolden) {
  const std::vector<float> golden{-4, 2, 1, 0};
  LogitComparer comparer(golden);
  comparer.add(7, std::span(golden).first(2), std::vector<float>{-4, 2});
  comparer.add(8, std::span(golden).last(2), std::vector<float>{1, 2});
  const LogitErrors errors = comparer.result();
  EXPECT_DOUBLE_EQ(errors.largest, 4);
  EXPECT_DOUBLE_EQ(errors.worst, 0.5);
  EXPECT_DOUBLE_EQ(errors.mean, 0.125);
  EXPECT_EQ(errors.worst_row, 8);
  EXPECT_EQ(errors.worst_id, 1);
}

TEST(Compare, NanIsAnInfiniteError) {
  const std::vector<float> golden{1, 2};
  LogitComparer comparer(golden);
  comparer.add(0, golden, std::vector<float>{1, kNan});
  EXPECT_TRUE(std::isinf(comparer.result().worst));
}

TEST(Compare, AnArgmaxWithinTheErrorIsATie) {
  const std::vector<ArgmaxRow> rows{{0, true, 0}, {1, false, 0.1}, {2, false, 0.3}, {3, false, 0.4}};
  const ArgmaxAgreement agreement = agree(rows, 0.2);
  EXPECT_EQ(agreement.compared, 4);
  EXPECT_EQ(agreement.equal, 1);
  EXPECT_EQ(agreement.ties, 1);
  EXPECT_EQ(agreement.wrong(), 2);
  EXPECT_EQ(agreement.first_wrong, 2);
}

TEST(Compare, SelectionsAreSetsAndPaddingIsIgnored) {
  SelectionAgreement agreement;
  add_selection(agreement, 5, std::vector<int32_t>{5, 0, 3, 9}, std::vector<int32_t>{0, 3, 5, -1}, 0, 1e-5);
  EXPECT_EQ(agreement.equal, 1);
  add_selection(agreement, 9, std::vector<int32_t>{1, 2}, std::vector<int32_t>{1, 3}, 1e-6, 1e-5);
  EXPECT_EQ(agreement.ties, 1);
  EXPECT_EQ(agreement.missed, 1);
  add_selection(agreement, 10, std::vector<int32_t>{1, 2}, std::vector<int32_t>{1, 3}, 1e-3, 1e-5);
  EXPECT_EQ(agreement.wrong(), 1);
  EXPECT_EQ(agreement.first_wrong, 10);
  EXPECT_DOUBLE_EQ(agreement.widest_wrong, 1e-3);
}

TEST(Compare, AMissingMemberIsNeverATie) {
  SelectionAgreement agreement;
  add_selection(agreement, 5, std::vector<int32_t>{1, 2}, std::vector<int32_t>{1}, 0, 1e-5);
  EXPECT_EQ(agreement.wrong(), 1);
}

}  // namespace
}  // namespace winnow
