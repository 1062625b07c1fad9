// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace winnow {
namespace {

TEST(Text, ColumnsNeverCut) {
  EXPECT_EQ(padded("", 2), "  ");
  EXPECT_EQ(padded("ab", 4), "ab  ");
  EXPECT_EQ(padded("abc", 2), "abc");
  EXPECT_EQ(right_aligned("ab", 4), "  ab");
  EXPECT_EQ(right_aligned("abc", 0), "abc");
}

TEST(Text, ListsHaveNothingBeforeTheFirstPart) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"", "b", ""}, ", "), ", b, ");
}

TEST(Text, OneIsSingular) {
  EXPECT_EQ(plural(0, "token"), "0 tokens");
  EXPECT_EQ(plural(1, "token"), "1 token");
  EXPECT_EQ(plural(2048, "token"), "2,048 tokens");
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(short_number(0), "0.00");
  EXPECT_EQ(short_number(0.0123456), "0.0123");
  EXPECT_EQ(short_number(58.77), "58.8");
  EXPECT_EQ(short_number(2056.7), "2,057");
  EXPECT_EQ(short_number(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(fixed(2.0 / 3, 3), "0.667");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 0).size(), 309u);
  EXPECT_EQ(scientific(0.000123456), "1.23e-04");
}

TEST(Text, SizesHaveDecimalUnits) {
  EXPECT_EQ(short_bytes(0), "0 B");
  EXPECT_EQ(short_bytes(999), "999 B");
  EXPECT_EQ(short_bytes(999'960), "1.0 MB");
  EXPECT_EQ(both_bytes(452'840'051'712), "452.8 GB (452,840,051,712 B)");
  EXPECT_EQ(short_rate(1.792e12, "B/s"), "1.79 TB/s");
}

}  // namespace
}  // namespace winnow
