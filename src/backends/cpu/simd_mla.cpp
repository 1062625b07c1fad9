// SPDX-License-Identifier: Apache-2.0
// Sparse MLA of cpu.simd: one token, a range of heads.
//
//   for each tile of 64 rows:  decode the rows once to float, for all heads
//     scores   4 heads x 3 or 4 rows at a time: dot products along the dims, one vector accumulator per (head, row)
//     softmax  online: running maximum and sum per head; weights exp(score - maximum)
//     values   4 heads x 2 or 4 vectors of columns at a time, over the rows of the tile
// Scores run over dims without a transposition of the rows: at the 1 to 16 heads of one rank the transposition would
// cost as much as it saves. Every sum has one order (dims ascending by vector, rows ascending by list), so results do
// not depend on how heads and tokens are spread over threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/simd_mla.cpp"
// Accumulators stand in arrays, which scalable vectors do not allow; NEON serves those machines.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/simd_decode-inl.h"
#include "backends/cpu/simd_kernels.hpp"
#include "contract/element_types.hpp"
#include "core/checked.hpp"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::cpu::HWY_NAMESPACE {

constexpr int64_t kTile = 64;  // rows decoded at once: 64 x 576 floats stay in L2
constexpr int64_t kPad = 16;   // row scratch is padded with zeros to the widest vector
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
constexpr int kScoreRows = kManyRegisters ? 4 : 3;
constexpr int kHeads = 4;
constexpr int kColumns = kManyRegisters ? 4 : 2;  // vectors of columns

struct Views {
  const SparseMlaProblem& p;
  int64_t heads, width, out_width;  // width: d_qk padded; out_width: d_v padded
  float* q;                         // [heads, width]
  float* rows;                      // [kTile, width]
  float* score;                     // [heads, kTile]: scores, then weights
  float* out;                       // [heads, out_width]
  float* top;                       // [heads] running maximum
  float* sum;                       // [heads] running sum of weights
  float* shrink;                    // [heads] factor of this tile on what was summed before
};

HWY_INLINE void DecodeRow(const SparseMlaProblem& p, const std::byte* row, float* out, int64_t width) {
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  const DType plain = rope_type(p.rows);
  if (p.rows == RowFormat::v32_fp8) {
    const F32 df;
    const auto lanes = static_cast<int64_t>(hn::Lanes(df));
    const auto* codes = reinterpret_cast<const uint8_t*>(row);
    for (int64_t first = 0; first < p.d_nope; first += kLatentsPerScale) {
      float scale = 0;
      std::memcpy(&scale, row + layout.scales + first / kLatentsPerScale * 4, 4);
      const auto factor = hn::Set(df, scale);
      const int64_t last = std::min<int64_t>(p.d_nope, first + kLatentsPerScale);  // d_nope is a multiple of 32
      for (int64_t d = first; d < last; d += lanes) {
        hn::StoreU(hn::Mul(LoadE4m3(df, codes + d), factor), df, out + d);
      }
    }
  } else {
    DecodeFloats(row, plain, p.d_nope, out);
  }
  DecodeFloats(row + layout.rope, plain, p.d_rope, out + p.d_nope);
  std::fill(out + p.d_qk(), out + width, 0.0f);
}

HWY_INLINE void PrefetchRow(const std::byte* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(row + at);
}

// Scores of kH heads with kR rows.
template <int kH, int kR>
HWY_INLINE void ScoreBlock(const Views& v, int64_t head, int64_t row) {
  const F32 df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  Vec acc[kH][kR];
  for (auto& line : acc) {
    for (auto& a : line) a = hn::Zero(df);
  }
  const float* HWY_RESTRICT q = v.q + head * v.width;
  const float* HWY_RESTRICT rows = v.rows + row * v.width;
  for (int64_t d = 0; d < v.width; d += lanes) {
    Vec r[kR];
    for (int j = 0; j < kR; ++j) r[j] = hn::LoadU(df, rows + j * v.width + d);
    for (int h = 0; h < kH; ++h) {
      const Vec qv = hn::LoadU(df, q + h * v.width + d);
      for (int j = 0; j < kR; ++j) acc[h][j] = hn::MulAdd(qv, r[j], acc[h][j]);
    }
  }
  for (int h = 0; h < kH; ++h) {
    for (int j = 0; j < kR; ++j) {
      v.score[(head + h) * kTile + row + j] = v.p.softmax_scale * hn::GetLane(hn::SumOfLanes(df, acc[h][j]));
    }
  }
}

template <int kR>
HWY_INLINE void ScoreRows(const Views& v, int64_t row) {
  int64_t head = 0;
  for (; head + kHeads <= v.heads; head += kHeads) ScoreBlock<kHeads, kR>(v, head, row);
  for (; head + 2 <= v.heads; head += 2) ScoreBlock<2, kR>(v, head, row);
  for (; head < v.heads; ++head) ScoreBlock<1, kR>(v, head, row);
}

HWY_INLINE void Score(const Views& v, int64_t rows) {
  int64_t row = 0;
  for (; row + kScoreRows <= rows; row += kScoreRows) ScoreRows<kScoreRows>(v, row);
  for (; row < rows; ++row) ScoreRows<1>(v, row);
}

// Turns the tile's scores of one head into weights relative to the running maximum.
HWY_INLINE void Softmax(const Views& v, int64_t head, int64_t rows) {
  const F32 df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  float* HWY_RESTRICT score = v.score + head * kTile;
  std::fill(score + rows, score + kTile, -std::numeric_limits<float>::infinity());
  Vec top = hn::Set(df, v.top[head]);
  for (int64_t j = 0; j < rows; j += lanes) top = hn::Max(top, hn::LoadU(df, score + j));
  const float now = hn::GetLane(hn::MaxOfLanes(df, top));
  const float base = now == -std::numeric_limits<float>::infinity() ? 0.0f : now;  // all -inf: weights are 0
  v.shrink[head] = std::exp(v.top[head] - base);
  v.top[head] = now;
  Vec sum = hn::Zero(df);
  for (int64_t j = 0; j < rows; j += lanes) {
    const Vec x = hn::Sub(hn::LoadU(df, score + j), hn::Set(df, base));
    // Highway's Exp takes NaN for very negative. IsNaN, because x != x is an ordered comparison on AVX-512.
    const Vec weight = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(df, x));
    hn::StoreU(weight, df, score + j);
    sum = hn::Add(sum, weight);
  }
  v.sum[head] = v.sum[head] * v.shrink[head] + hn::GetLane(hn::SumOfLanes(df, sum));
}

// out[head...][column...] = out * shrink + weights * rows, kH heads by kC vectors.
template <int kH, int kC>
HWY_INLINE void ValueBlock(const Views& v, int64_t head, int64_t column, int64_t rows) {
  const F32 df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  Vec acc[kH][kC];
  for (int h = 0; h < kH; ++h) {
    const Vec shrink = hn::Set(df, v.shrink[head + h]);
    for (int c = 0; c < kC; ++c) {
      acc[h][c] = hn::Mul(shrink, hn::LoadU(df, v.out + (head + h) * v.out_width + column + c * lanes));
    }
  }
  const float* HWY_RESTRICT weight = v.score + head * kTile;
  const float* HWY_RESTRICT at = v.rows + column;
  for (int64_t j = 0; j < rows; ++j, at += v.width) {
    Vec r[kC];
    for (int c = 0; c < kC; ++c) r[c] = hn::LoadU(df, at + c * lanes);
    for (int h = 0; h < kH; ++h) {
      const Vec w = hn::Set(df, weight[h * kTile + j]);
      for (int c = 0; c < kC; ++c) acc[h][c] = hn::MulAdd(w, r[c], acc[h][c]);
    }
  }
  for (int h = 0; h < kH; ++h) {
    for (int c = 0; c < kC; ++c) {
      hn::StoreU(acc[h][c], df, v.out + (head + h) * v.out_width + column + c * lanes);
    }
  }
}

template <int kC>
HWY_INLINE void ValueColumns(const Views& v, int64_t column, int64_t rows) {
  int64_t head = 0;
  for (; head + kHeads <= v.heads; head += kHeads) ValueBlock<kHeads, kC>(v, head, column, rows);
  for (; head + 2 <= v.heads; head += 2) ValueBlock<2, kC>(v, head, column, rows);
  for (; head < v.heads; ++head) ValueBlock<1, kC>(v, head, column, rows);
}

HWY_INLINE void Values(const Views& v, int64_t rows) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + kColumns * lanes <= v.out_width; column += kColumns * lanes) ValueColumns<kColumns>(v, column, rows);
  for (; column < v.out_width; column += lanes) ValueColumns<1>(v, column, rows);
}

HWY_INLINE void LoadQ(const Views& v, const MlaWork& work) {
  const HeadTensor& q = work.buffers->q;
  const DType type = v.p.activations;
  for (int64_t h = 0; h < v.heads; ++h) {
    const int64_t index = work.token * q.token_stride + (work.head_begin + h) * q.head_stride;
    DecodeFloats(static_cast<const std::byte*>(q.data) + index * bytes_of(type), type, v.p.d_qk(), v.q + h * v.width);
    std::fill(v.q + h * v.width + v.p.d_qk(), v.q + (h + 1) * v.width, 0.0f);
  }
}

HWY_INLINE void StoreHead(const Views& v, const MlaWork& work, int64_t h) {
  const int64_t head = work.head_begin + h;
  const SparseMlaBuffers& b = *work.buffers;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const bool empty = work.rows.empty() || (v.top[h] == -kInf && v.sum[h] == 0);
  const float lse = empty ? -kInf : v.top[h] + std::log(v.sum[h]);
  float factor = empty ? 0.0f : 1.0f / v.sum[h];
  if (!empty && !b.sink.empty()) factor /= 1.0f + std::exp(b.sink(head) - lse);
  const float* from = v.out + h * v.out_width;
  const int64_t index = work.token * b.out.token_stride + head * b.out.head_stride;
  if (v.p.activations == DType::f32) {
    float* to = static_cast<float*>(b.out.data) + index;
    for (int64_t d = 0; d < v.p.d_v; ++d) to[d] = empty ? 0.0f : from[d] * factor;
  } else {
    auto* to = static_cast<bf16*>(b.out.data) + index;
    for (int64_t d = 0; d < v.p.d_v; ++d) to[d] = to_bf16(empty ? 0.0f : from[d] * factor);
  }
  if (!b.lse.empty()) b.lse(work.token, head) = lse;
}

void Attend(const MlaWork& work) {
  const SparseMlaProblem& p = *work.problem;
  const int64_t heads = work.head_end - work.head_begin;
  const int64_t width = round_up(p.d_qk(), kPad);
  const int64_t out_width = round_up(p.d_v, kPad);
  float* memory = work.scratch->get(heads * (width + out_width + kTile + 3) + kTile * width + kPad);
  Views v{p, heads, width, out_width, memory, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  v.rows = v.q + heads * width;
  v.score = v.rows + kTile * width;
  v.out = v.score + heads * kTile;
  v.top = v.out + heads * out_width;
  v.sum = v.top + heads;
  v.shrink = v.sum + heads;
  std::fill(v.out, v.out + heads * out_width, 0.0f);
  std::fill(v.top, v.top + heads, -std::numeric_limits<float>::infinity());
  std::fill(v.sum, v.sum + heads, 0.0f);
  const auto count = static_cast<int64_t>(work.rows.size());
  if (count > 0) LoadQ(v, work);  // q of an empty row is never read
  const int64_t row_size = row_bytes(p.rows, p.d_nope, p.d_rope);
  for (int64_t first = 0; first < count; first += kTile) {
    const int64_t rows = std::min(kTile, count - first);
    for (int64_t j = 0; j < rows; ++j) {
      if (first + j + 2 < count) PrefetchRow(work.rows[static_cast<size_t>(first + j + 2)], row_size);
      DecodeRow(p, work.rows[static_cast<size_t>(first + j)], v.rows + j * width, width);
    }
    Score(v, rows);
    for (int64_t h = 0; h < heads; ++h) Softmax(v, h, rows);
    Values(v, rows);
  }
  for (int64_t h = 0; h < heads; ++h) StoreHead(v, work, h);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace winnow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::cpu {
HWY_EXPORT(Attend);
HWY_EXPORT(TargetName);

void attend(const MlaWork& work) { HWY_DYNAMIC_DISPATCH(Attend)(work); }
const char* simd_target_name() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

float* FloatScratch::get(int64_t count) {
  constexpr int64_t kAlign = 64 / sizeof(float);
  if (static_cast<int64_t>(storage_.size()) < count + kAlign) storage_.resize(static_cast<size_t>(count + kAlign));
  const auto address = reinterpret_cast<uintptr_t>(storage_.data());
  return storage_.data() + (round_up(static_cast<int64_t>(address), 64) - static_cast<int64_t>(address)) / 4;
}

}  // namespace winnow::cpu
#endif
