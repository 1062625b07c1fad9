// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/kernels.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "core/dtype.hpp"

// SSE4 (2008) is the least CPU served: four lanes are what the rule of summation stands on. AVX-512 subsets beyond AVX3
// add nothing to float32 arithmetic and cost compile time.
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Quad = hn::Full128<float>;

// Each source type gives N floats from element k on; tail() the last `count` < N and zeros behind them.
struct RowF32 {
  static HWY_INLINE V load(D d, const std::byte* row, int64_t k) {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + k);
  }
  static HWY_INLINE V tail(D d, const std::byte* row, int64_t k, int64_t count) {
    alignas(64) float padded[64] = {};
    std::memcpy(padded, row + k * 4, static_cast<std::size_t>(count) * 4);
    return hn::Load(d, padded);
  }
};

struct RowBf16 {
  static HWY_INLINE V widen(D d, const uint16_t* bits) {
    const hn::RebindToUnsigned<D> d32;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, bits))));
  }
  static HWY_INLINE V load(D d, const std::byte* row, int64_t k) {
    return widen(d, reinterpret_cast<const uint16_t*>(row) + k);
  }
  static HWY_INLINE V tail(D d, const std::byte* row, int64_t k, int64_t count) {
    alignas(64) uint16_t padded[64] = {};
    std::memcpy(padded, row + k * 2, static_cast<std::size_t>(count) * 2);
    return widen(d, padded);
  }
};

struct RowF16 {
  static HWY_INLINE V widen(D d, const uint16_t* bits) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(bits)));
  }
  static HWY_INLINE V load(D d, const std::byte* row, int64_t k) {
    return widen(d, reinterpret_cast<const uint16_t*>(row) + k);
  }
  static HWY_INLINE V tail(D d, const std::byte* row, int64_t k, int64_t count) {
    alignas(64) uint16_t padded[64] = {};
    std::memcpy(padded, row + k * 2, static_cast<std::size_t>(count) * 2);
    return widen(d, padded);
  }
};

// 34 bytes: f16 scale, 32 int8. Vectors of up to 32 lanes divide a block. The product scale * q is exact in float
// (11 + 8 bits), so decoding first and multiplying at once are the same.
struct RowQ8_0 {
  static constexpr int64_t kElements = 32, kBytes = 34;
  static HWY_INLINE V load(D d, const std::byte* row, int64_t k) {
    const std::byte* block = row + k / kElements * kBytes;
    f16 scale;
    std::memcpy(&scale, block, sizeof scale);
    const hn::RebindToSigned<D> d32;
    const hn::Rebind<int8_t, D> d8;
    const auto q = hn::LoadU(d8, reinterpret_cast<const int8_t*>(block + 2) + k % kElements);
    return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, q)), hn::Set(d, to_float(scale)));
  }
  static HWY_INLINE V tail(D d, const std::byte*, int64_t, int64_t) { return hn::Zero(d); }  // K is whole blocks
};

// Sums of four accumulators, side by side.
HWY_INLINE hn::Vec<Quad> fold(hn::Vec<Quad> v) { return v; }
template <class VW>
HWY_INLINE hn::Vec<Quad> fold(VW v) {
  const hn::DFromV<VW> d;
  const hn::Half<decltype(d)> half;
  return fold(hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
}

HWY_INLINE hn::Vec<Quad> sums_of(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> d64;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));  // a0+a2 b0+b2 a1+a3 b1+b3
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto lower = hn::InterleaveLower(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const auto upper = hn::InterleaveUpper(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  return fold(hn::Add(hn::BitCast(d, lower), hn::BitCast(d, upper)));
}

HWY_INLINE void store_sums(hn::Vec<Quad> sums, int64_t count, float* out) {
  const Quad quad;
  if (count == kRowGroup) {
    hn::StoreU(sums, quad, out);
    return;
  }
  alignas(16) float all[kRowGroup];
  hn::Store(sums, quad, all);
  std::memcpy(out, all, static_cast<std::size_t>(count) * sizeof(float));
}

// Weights are read once per token, in order: asking for them a few KB ahead hides latency that short rows do not let
// the hardware see in time. A prefetch behind the end of a matrix is harmless.
HWY_INLINE void prefetch_ahead(const std::byte* w, int64_t row_bytes) {
  constexpr int64_t kAhead = 4096, kLine = 64;
  for (int64_t at = 0; at < kRowGroup * row_bytes; at += kLine) hwy::Prefetch(w + kAhead + at);
}

// Fewer than four rows: the last one stands in for the missing, so that no memory beyond the matrix is read.
template <class Row>
void dot_rows_of(const std::byte* w, int64_t row_bytes, int rows, const float* x, int64_t k, float* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const std::byte* w0 = w;
  const std::byte* w1 = w + std::min(1, rows - 1) * row_bytes;
  const std::byte* w2 = w + std::min(2, rows - 1) * row_bytes;
  const std::byte* w3 = w + std::min(3, rows - 1) * row_bytes;
  prefetch_ahead(w, row_bytes);
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    const V xi = hn::LoadU(d, x + i);
    s0 = hn::MulAdd(Row::load(d, w0, i), xi, s0);
    s1 = hn::MulAdd(Row::load(d, w1, i), xi, s1);
    s2 = hn::MulAdd(Row::load(d, w2, i), xi, s2);
    s3 = hn::MulAdd(Row::load(d, w3, i), xi, s3);
  }
  if (i < k) {
    const V xi = RowF32::tail(d, reinterpret_cast<const std::byte*>(x), i, k - i);
    s0 = hn::MulAdd(Row::tail(d, w0, i, k - i), xi, s0);
    s1 = hn::MulAdd(Row::tail(d, w1, i, k - i), xi, s1);
    s2 = hn::MulAdd(Row::tail(d, w2, i, k - i), xi, s2);
    s3 = hn::MulAdd(Row::tail(d, w3, i, k - i), xi, s3);
  }
  store_sums(sums_of(d, s0, s1, s2, s3), rows, out);
}

// Q8_0 has its own loop: four scales are converted at once, since one by one they would cost more than the products.
void dot_rows_q8_0(const std::byte* w, int64_t row_bytes, int rows, const float* x, int64_t k, float* out) {
  const D d;
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<int8_t, D> d8;
  const Quad quad;
  const hn::Rebind<hwy::float16_t, Quad> quad16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const std::byte* row[kRowGroup];
  for (int r = 0; r < kRowGroup; ++r) row[r] = w + std::min(r, rows - 1) * row_bytes;
  prefetch_ahead(w, row_bytes);
  V sum[kRowGroup];
  for (V& s : sum) s = hn::Zero(d);
  for (int64_t block = 0; block < k / RowQ8_0::kElements; ++block) {
    const int64_t at = block * RowQ8_0::kBytes;
    alignas(8) hwy::float16_t halves[kRowGroup];
    alignas(16) float scale[kRowGroup];
    for (int r = 0; r < kRowGroup; ++r) std::memcpy(&halves[r], row[r] + at, sizeof halves[r]);
    hn::Store(hn::PromoteTo(quad, hn::Load(quad16, halves)), quad, scale);
    for (int64_t i = 0; i < RowQ8_0::kElements; i += lanes) {
      const V xi = hn::LoadU(d, x + block * RowQ8_0::kElements + i);
      for (int r = 0; r < kRowGroup; ++r) {
        const auto q = hn::LoadU(d8, reinterpret_cast<const int8_t*>(row[r] + at + 2) + i);
        const V value = hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, q)), hn::Set(d, scale[r]));
        sum[r] = hn::MulAdd(value, xi, sum[r]);
      }
    }
  }
  store_sums(sums_of(d, sum[0], sum[1], sum[2], sum[3]), rows, out);
}

void dot_rows(StorageType type, const std::byte* w, int64_t row_bytes, int rows, const float* x, int64_t k,
              float* out) {
  switch (type) {
    case StorageType::F32: return dot_rows_of<RowF32>(w, row_bytes, rows, x, k, out);
    case StorageType::F16: return dot_rows_of<RowF16>(w, row_bytes, rows, x, k, out);
    case StorageType::BF16: return dot_rows_of<RowBf16>(w, row_bytes, rows, x, k, out);
    case StorageType::Q8_0: return dot_rows_q8_0(w, row_bytes, rows, x, k, out);
    default: WINNOW_CHECK(false, "no kernel decodes type ", static_cast<uint32_t>(type));
  }
}

// Tokens of one tile: accumulators (4 rows x tokens), the tokens' vectors and one of a row must fit the registers.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTokenTile = 6;  // 24 + 6 + 1 of 32
#else
constexpr int kTokenTile = 3;  // 12 + 3 + 1 of 16
#endif
static_assert(kTokenTile <= kMaxTokenTile);

// Long rows are multiplied in blocks, so that the tokens of a tile and four rows stay in the first-level cache; the
// accumulators of a tile then wait in memory, lane by lane, for the next block. 24 KB of tokens of 48.
constexpr int64_t kBlockElements = 1024;
constexpr int64_t kStripRows = 64;  // rows whose accumulators wait at once

struct Strip {
  const float* w;  // row 0
  int64_t w_stride, rows, k;
  int64_t first;  // column of `out` that row 0 makes
};

// Four rows from `row` on, elements [begin, end): from `carry` unless begin is 0, into it unless end is k.
template <int kTokens>
HWY_INLINE void tile(const Strip& s, int64_t row, const float* const* x, float* const* out, int64_t begin, int64_t end,
                     float* HWY_RESTRICT carry) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* w[kRowGroup];
  for (int r = 0; r < kRowGroup; ++r) w[r] = s.w + std::min(row + r, s.rows - 1) * s.w_stride;
  V sum[kTokens][kRowGroup];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRowGroup; ++r) {
      sum[t][r] = begin == 0 ? hn::Zero(d) : hn::Load(d, carry + (t * kRowGroup + r) * lanes);
    }
  }
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    V xi[kTokens];
    for (int t = 0; t < kTokens; ++t) xi[t] = hn::LoadU(d, x[t] + i);
    for (int r = 0; r < kRowGroup; ++r) {
      const V wi = hn::LoadU(d, w[r] + i);
      for (int t = 0; t < kTokens; ++t) sum[t][r] = hn::MulAdd(wi, xi[t], sum[t][r]);
    }
  }
  if (end < s.k) {
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < kRowGroup; ++r) hn::Store(sum[t][r], d, carry + (t * kRowGroup + r) * lanes);
    }
    return;
  }
  if (i < end) {
    for (int t = 0; t < kTokens; ++t) {
      const V xi = RowF32::tail(d, reinterpret_cast<const std::byte*>(x[t]), i, end - i);
      for (int r = 0; r < kRowGroup; ++r) {
        const V wi = RowF32::tail(d, reinterpret_cast<const std::byte*>(w[r]), i, end - i);
        sum[t][r] = hn::MulAdd(wi, xi, sum[t][r]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    store_sums(sums_of(d, sum[t][0], sum[t][1], sum[t][2], sum[t][3]), std::min<int64_t>(s.rows - row, kRowGroup),
               out[t] + s.first + row);
  }
}

template <int kTokens>
void rows_of_tile(const Strip& s, const float* const* x, float* const* out) {
  alignas(64) float carry[kStripRows * kMaxTokenTile * HWY_MAX_BYTES / sizeof(float)];
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t begin = 0; begin < s.k; begin += kBlockElements) {
    const int64_t end = std::min(begin + kBlockElements, s.k);
    for (int64_t row = 0; row < s.rows; row += kRowGroup) {
      tile<kTokens>(s, row, x, out, begin, end, carry + row * kTokens * lanes);
    }
  }
}

// A tile of tokens stays in the first-level cache while the rows of the panel pass by from the second.
void panel(const float* w, int64_t w_stride, int64_t rows, const float* const* x, int64_t tokens, int64_t k,
           float* const* out, int64_t first) {
  for (int64_t row = 0; row < rows; row += kStripRows) {
    const Strip strip{w + row * w_stride, w_stride, std::min(kStripRows, rows - row), k, first + row};
    int64_t t = 0;
    for (; t + kTokenTile <= tokens; t += kTokenTile) rows_of_tile<kTokenTile>(strip, x + t, out + t);
    for (; t + 2 <= tokens; t += 2) rows_of_tile<2>(strip, x + t, out + t);
    if (t < tokens) rows_of_tile<1>(strip, x + t, out + t);
  }
}

template <class Row>
void decode_row_of(const std::byte* blocks, int64_t k, float* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) hn::StoreU(Row::load(d, blocks, i), d, out + i);
  if (i < k) {
    alignas(64) float padded[64];
    hn::Store(Row::tail(d, blocks, i, k - i), d, padded);
    std::memcpy(out + i, padded, static_cast<std::size_t>(k - i) * sizeof(float));
  }
}

void decode_row(StorageType type, const std::byte* blocks, int64_t k, float* out) {
  switch (type) {
    case StorageType::F16: return decode_row_of<RowF16>(blocks, k, out);
    case StorageType::BF16: return decode_row_of<RowBf16>(blocks, k, out);
    case StorageType::Q8_0: return decode_row_of<RowQ8_0>(blocks, k, out);
    default: WINNOW_CHECK(false, "no kernel decodes type ", static_cast<uint32_t>(type));
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

ProductKernels kernels() { return {dot_rows, panel, decode_row}; }

}  // namespace winnow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::cpu {
HWY_EXPORT(kernels);
HWY_EXPORT(target_name);

const ProductKernels& product_kernels() {
  static const ProductKernels chosen = HWY_DYNAMIC_DISPATCH(kernels)();
  return chosen;
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace winnow::cpu
#endif  // HWY_ONCE
