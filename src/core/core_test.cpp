// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/buffer.hpp"
#include "core/checked.hpp"
#include "core/dtype.hpp"
#include "core/log.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"
#include "core/threads.hpp"

namespace winnow {
namespace {

// The conversions are checked against the definition of the formats: the nearest of all representable values,
// found by search, ties to the one with an even last bit.
template <class Small, class Bits>
Bits nearest_by_search(float x, Bits first, Bits last) {
  Bits best = first;
  double best_distance = INFINITY;
  for (uint32_t bits = first; bits <= last; ++bits) {
    const double distance = std::fabs(static_cast<double>(to_float(Small{static_cast<Bits>(bits)})) - x);
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = static_cast<Bits>(bits);
      best_distance = distance;
    }
  }
  return best;
}

TEST(DTypeTest, EveryF16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 x{static_cast<uint16_t>(bits)};
    const float value = to_float(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(value)))) << bits;
    } else {
      EXPECT_EQ(to_f16(value).bits, x.bits) << bits;
    }
  }
}

TEST(DTypeTest, EveryBf16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    const float value = to_float(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(value)))) << bits;
    } else {
      EXPECT_EQ(to_bf16(value).bits, x.bits) << bits;
    }
  }
}

TEST(DTypeTest, E4m3IsTheNearestValueTiesToEven) {
  for (int i = 0; i <= 4480; ++i) {
    const float x = static_cast<float>(i) * 0.1f;
    EXPECT_EQ(to_e4m3(x).bits, (nearest_by_search<e4m3, uint8_t>(x, 0, 0x7E))) << x;
    EXPECT_EQ(to_e4m3(-x).bits, 0x80 | to_e4m3(x).bits) << x;
  }
  for (int i = 0; i <= 64; ++i) {  // subnormals and the ties between them
    const float x = static_cast<float>(i) * 0x1p-12f;
    EXPECT_EQ(to_e4m3(x).bits, (nearest_by_search<e4m3, uint8_t>(x, 0, 0x7E))) << x;
  }
}

TEST(DTypeTest, E4m3EdgesOfTheFnVariant) {
  EXPECT_EQ(to_float(e4m3{0x7E}), 448.0f);
  EXPECT_EQ(to_float(e4m3{0x01}), 0x1p-9f);
  EXPECT_TRUE(std::isnan(to_float(e4m3{0x7F})));
  EXPECT_TRUE(std::isnan(to_float(e4m3{0xFF})));
  EXPECT_EQ(to_e4m3(1e9f).bits, 0x7E);
  EXPECT_EQ(to_e4m3(-INFINITY).bits, 0xFE);
  EXPECT_TRUE(std::isnan(to_float(to_e4m3(NAN))));
}

TEST(DTypeTest, F16TiesOverflowAndSubnormals) {
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_f16(2049.0f).bits, to_f16(2048.0f).bits);  // tie to even
  EXPECT_EQ(to_f16(2051.0f).bits, to_f16(2052.0f).bits);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0);  // half of the smallest subnormal: tie to zero
  EXPECT_EQ(to_f16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
}

TEST(StatusTest, ResultCarriesValueOrFailureAndPlace) {
  const Result<int> good = 7;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  const Result<int> bad = error(StatusCode::not_found, "key ", "a.b", " is absent");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().in("model.gguf").message(), "model.gguf: key a.b is absent");
}

Result<int> half(int x) {
  if (x % 2 != 0) return error(StatusCode::invalid_argument, x, " is odd");
  return x / 2;
}
Result<int> quarter(int x) {
  WINNOW_TRY_ASSIGN(const int h, half(x));
  return half(h);
}
TEST(StatusTest, TryAssignReturnsTheFirstFailure) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(quarter(5).status().code(), StatusCode::invalid_argument);
}

TEST(CheckedTest, OverflowIsAnAnswer) {
  EXPECT_EQ(checked_mul(1LL << 40, 1LL << 22), 1LL << 62);
  EXPECT_FALSE(checked_mul(1LL << 40, 1LL << 24).has_value());
  EXPECT_FALSE(checked_add(INT64_MAX, 1).has_value());
  EXPECT_FALSE(checked_product({1 << 30, 1 << 30, 1 << 30}).has_value());
  EXPECT_EQ(checked_product({}), 1);
}

TEST(BufferTest, IsZeroAlignedAndEmptyIsLegal) {
  const auto empty = Buffer::allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->data(), nullptr);
  const auto buffer = Buffer::allocate(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kBufferAlignment, 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(buffer->as<uint8_t>()[i], 0);
  EXPECT_EQ(Buffer::allocate(INT64_MAX).status().code(), StatusCode::out_of_memory);
}

TEST(TensorViewTest, StridesAreOutermostFirst) {
  std::vector<float> data(24);
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const TensorView<float> view(data.data(), {2, 3, 4});
  EXPECT_EQ(view(1, 2, 3), 23.0f);
  EXPECT_EQ(view.row(1), data.data() + 12);
  const TensorView<const float> constant = view;
  EXPECT_EQ(constant(0, 1, 0), 4.0f);
}

TEST(ThreadsTest, EveryItemOnceWhateverTheTeam) {
  for (int team : {1, 2, 3}) {
    set_threads(team);
    for (int64_t items : {0, 1, 7, 64, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(items));
      parallel_for(items, 5, [&](int64_t begin, int64_t end, int worker) {
        EXPECT_LT(worker, team);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& count : seen) EXPECT_EQ(count, 1);
    }
  }
  set_threads(0);
}

TEST(LogTest, ASinkReceivesMessagesAndCanBeTakenBack) {
  std::string got;
  set_log_sink([&](LogLevel, std::string_view message) { got = message; });
  log(LogLevel::warning, "hello");
  set_log_sink({});
  EXPECT_EQ(got, "hello");
}

}  // namespace
}  // namespace winnow
