// SPDX-License-Identifier: Apache-2.0
// Products against double arithmetic, for every storage type and awkward shape; and the promise that a token's bits do
// not depend on its company or on threads.
#include "ops/cpu/products.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/dtype.hpp"
#include "core/threads.hpp"
#include "ops/cpu/decode.hpp"
#include "ops/cpu/kernels.hpp"

namespace winnow::cpu {
namespace {

constexpr StorageType kTypes[] = {StorageType::F32,  StorageType::F16,    StorageType::BF16,  StorageType::Q4_0,
                                  StorageType::Q4_1, StorageType::Q5_0,   StorageType::Q5_1,  StorageType::Q8_0,
                                  StorageType::Q2_K, StorageType::Q3_K,   StorageType::Q4_K,  StorageType::Q5_K,
                                  StorageType::Q6_K, StorageType::IQ4_NL, StorageType::IQ4_XS};

// A matrix of random blocks whose values are finite and moderate.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  Matrix matrix;

  Stored(StorageType type, int64_t out, int64_t in, uint32_t seed) {
    const StorageTraits* traits = traits_of(type);
    std::mt19937 random(seed);
    matrix.type = type;
    matrix.out = out;
    matrix.in = in;
    matrix.row_bytes = in / traits->block_elements * traits->block_bytes;
    bytes.resize(static_cast<std::size_t>(matrix.bytes()));
    std::vector<float> values(static_cast<std::size_t>(traits->block_elements));
    for (int64_t b = 0; b < matrix.bytes(); b += traits->block_bytes) {
      do {
        for (int32_t i = 0; i < traits->block_bytes; ++i) bytes[b + i] = static_cast<std::byte>(random());
        decode(type, bytes.data() + b, values.data(), traits->block_elements);
      } while (!moderate(values));
    }
    matrix.data = bytes.data();
  }
  static bool moderate(const std::vector<float>& values) {
    float sum = 0;
    for (float v : values) sum += std::abs(v);
    return std::isfinite(sum) && sum < 1e4f && sum > 1e-4f;
  }
};

std::vector<float> random_rows(int64_t rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<float> multiply(const Matrix& w, const std::vector<float>& x, int64_t tokens) {
  std::vector<float> out(static_cast<std::size_t>(tokens * w.out), std::nanf(""));
  std::vector<const float*> x_rows;
  std::vector<float*> out_rows;
  for (int64_t t = 0; t < tokens; ++t) {
    x_rows.push_back(x.data() + t * w.in);
    out_rows.push_back(out.data() + t * w.out);
  }
  const Product product{w, x_rows.data(), out_rows.data(), tokens};
  WorkerScratch scratch;
  run_products({&product, 1}, scratch);
  return out;
}

void expect_right(const Matrix& w, const std::vector<float>& x, int64_t tokens, const std::vector<float>& got) {
  std::vector<float> row(static_cast<std::size_t>(w.in));
  for (int64_t o = 0; o < w.out; ++o) {
    decode_matrix_row(w, o, row.data());
    for (int64_t t = 0; t < tokens; ++t) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < w.in; ++i) {
        const double term = static_cast<double>(row[i]) * x[t * w.in + i];
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(got[t * w.out + o], sum, 1e-6 * size + 1e-30) << "output " << o << ", token " << t;
    }
  }
}

TEST(Products, NoTokensIsNothing) {
  const Stored w(StorageType::F32, 8, 8, 1);
  EXPECT_TRUE(multiply(w.matrix, {}, 0).empty());
}

TEST(Products, EveryTypeAgainstDouble) {
  for (StorageType type : kTypes) {
    const int64_t in = 2 * std::max(traits_of(type)->block_elements, 32);
    for (int64_t out : {1, 3, 4, 18}) {
      const Stored w(type, out, in, static_cast<uint32_t>(out));
      for (int64_t tokens : {1, 2, 3, 4, 9, 13}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << " " << out << " x " << in << ", tokens " << tokens);
        const std::vector<float> x = random_rows(tokens, in, 7);
        expect_right(w.matrix, x, tokens, multiply(w.matrix, x, tokens));
      }
    }
  }
}

TEST(Products, AnyRowLengthOfPlainTypes) {
  for (StorageType type : {StorageType::F32, StorageType::F16, StorageType::BF16}) {
    for (int64_t in = 1; in <= 35; ++in) {
      const Stored w(type, 5, in, static_cast<uint32_t>(in));
      for (int64_t tokens : {1, 5, 8}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << " in " << in << ", tokens " << tokens);
        const std::vector<float> x = random_rows(tokens, in, 3);
        expect_right(w.matrix, x, tokens, multiply(w.matrix, x, tokens));
      }
    }
  }
}

TEST(Products, PanelsLargerThanScratch) {
  const Stored w(StorageType::Q8_0, 70, 32 * 1000, 5);  // 32,000 floats a row: two rows fit the usual panel
  const std::vector<float> x = random_rows(4, w.matrix.in, 3);
  expect_right(w.matrix, x, 4, multiply(w.matrix, x, 4));
}

// The same row of x gives the same bits whatever comes with it: the engine's results do not depend on the batch.
TEST(Products, BitsDoNotDependOnCompanyOrThreads) {
  const int before = threads();
  for (StorageType type : kTypes) {
    const int64_t in = traits_of(type)->block_elements == 1 ? 77 : 256;
    const Stored w(type, 150, in, 11);
    const std::vector<float> x = random_rows(17, in, 5);
    set_threads(1);
    const std::vector<float> together = multiply(w.matrix, x, 17);
    set_threads(3);
    EXPECT_EQ(together, multiply(w.matrix, x, 17)) << name_of(type);
    for (int64_t t = 0; t < 17; ++t) {
      const std::vector<float> alone = multiply(w.matrix, {x.begin() + t * in, x.begin() + (t + 1) * in}, 1);
      ASSERT_EQ(alone, std::vector<float>(together.begin() + t * 150, together.begin() + (t + 1) * 150))
          << name_of(type);
    }
  }
  set_threads(before);
}

// Rows 100..355 of a matrix whose scale blocks begin at multiples of 128: a slice straddles them.
TEST(Products, BlockScalesOfASlice) {
  constexpr int64_t kIn = 200, kOut = 400;
  std::mt19937 random(3);
  std::vector<uint8_t> codes(kIn * kOut);
  for (uint8_t& c : codes) c = static_cast<uint8_t>(random() % 0x7E);
  std::vector<float> scales = {1, 2, 4, 8, 16, 32, 64, 128};  // [4][2]
  Matrix w{.data = reinterpret_cast<const std::byte*>(codes.data()),
           .type = StorageType::E4M3_B128,
           .out = kOut,
           .in = kIn,
           .row_bytes = kIn,
           .block_scales = scales.data(),
           .scale_stride = 2};
  const Matrix slice = w.rows(100, 256);
  std::vector<float> row(kIn);
  for (int64_t o : {0, 27, 28, 155, 156, 255}) {
    decode_matrix_row(slice, o, row.data());
    for (int64_t i : {0, 127, 128, 199}) {
      const float wanted = to_float(e4m3{codes[(100 + o) * kIn + i]}) * scales[(100 + o) / 128 * 2 + i / 128];
      EXPECT_EQ(wanted, row[i]) << "row " << o << ", element " << i;
    }
  }
  const std::vector<float> x = random_rows(3, kIn, 9);
  expect_right(slice, x, 3, multiply(slice, x, 3));
}

TEST(Kernels, DecodeRowsAsFormatsDo) {
  for (StorageType type : {StorageType::F16, StorageType::BF16, StorageType::Q8_0}) {
    const int64_t in = type == StorageType::Q8_0 ? 96 : 77;
    const Stored w(type, 1, in, 2);
    std::vector<float> wanted(in), got(in);
    decode(type, w.bytes.data(), wanted.data(), in);
    product_kernels().decode_row(type, w.bytes.data(), in, got.data());
    EXPECT_EQ(wanted, got) << name_of(type);
  }
}

}  // namespace
}  // namespace winnow::cpu
