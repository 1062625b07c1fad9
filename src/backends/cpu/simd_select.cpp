// SPDX-License-Identifier: Apache-2.0
// Index scores of cpu.simd: a panel of keys against all heads of all tokens of a block.
//
//   for each panel of 3 vectors of positions:  decode its keys once, transposed to [dim][position]
//     for each token of the block:  8 (or 4) heads x 3 vectors of accumulators run along the dims; relu; weight;
//     sum over heads; times the key's scale; pushed to the token's running top-k
// Lanes are positions, so there is no horizontal sum, and a score has one order of summation (dims ascending, heads
// ascending) whichever panel, block or thread computes it: a prefill chunk and a decode step select the same.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/simd_select.cpp"
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <limits>

#include "backends/cpu/simd_decode-inl.h"
#include "backends/cpu/simd_kernels.hpp"
#include "core/checked.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::cpu::HWY_NAMESPACE {

constexpr int kGroup = HWY_TARGET <= HWY_AVX3 ? 8 : 4;  // heads at a time: 24 of 32 or 12 of 16 registers accumulate
constexpr int kVectors = 3;

HWY_INLINE int64_t PanelWidth() { return kVectors * static_cast<int64_t>(hn::Lanes(F32())); }

struct Panel {
  int64_t first;  // position of lane 0
  float* keys;    // [dim, PanelWidth]
  float* scale;   // [PanelWidth]; NaN behind a damaged page
  bool scaled;    // false: every scale is 1
};

// Keys of one vector of positions: where each one's floats are, in place or in scratch.
constexpr int64_t kMostLanes = 16;
struct KeyRows {
  const float* at[kMostLanes];
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Transpose(const KeyRows& rows, int64_t dim, float* HWY_RESTRICT out, int64_t pitch) {
  for (int64_t d = 0; d < dim; ++d) out[d * pitch] = rows.at[0][d];
}
#else
// Four dims of keys i, i + 4, i + 8, i + 12 (as many as the vector has blocks of four lanes), key i in the low block.
HWY_INLINE Vec LoadBlocks(const KeyRows& rows, int64_t i, int64_t d) {
  const hn::FixedTag<float, 4> d4;
#if HWY_TARGET <= HWY_AVX3
  const hn::FixedTag<float, 8> d8;
  const F32 d16;
  return hn::Combine(d16, hn::Combine(d8, hn::LoadU(d4, rows.at[i + 12] + d), hn::LoadU(d4, rows.at[i + 8] + d)),
                     hn::Combine(d8, hn::LoadU(d4, rows.at[i + 4] + d), hn::LoadU(d4, rows.at[i] + d)));
#elif HWY_TARGET == HWY_AVX2
  const hn::FixedTag<float, 8> d8;
  return hn::Combine(d8, hn::LoadU(d4, rows.at[i + 4] + d), hn::LoadU(d4, rows.at[i] + d));
#else
  return hn::LoadU(d4, rows.at[i] + d);
#endif
}

// One vector of keys into as many columns of the panel: 4 x 4 transpositions in every block of four lanes at once.
HWY_INLINE void Transpose(const KeyRows& rows, int64_t dim, float* HWY_RESTRICT out, int64_t pitch) {
  const F32 df;
  const hn::Repartition<double, F32> dd;
  int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    const Vec a = LoadBlocks(rows, 0, d), b = LoadBlocks(rows, 1, d);
    const Vec c = LoadBlocks(rows, 2, d), e = LoadBlocks(rows, 3, d);
    const auto ab_low = hn::BitCast(dd, hn::InterleaveLower(df, a, b));
    const auto ce_low = hn::BitCast(dd, hn::InterleaveLower(df, c, e));
    const auto ab_high = hn::BitCast(dd, hn::InterleaveUpper(df, a, b));
    const auto ce_high = hn::BitCast(dd, hn::InterleaveUpper(df, c, e));
    hn::Store(hn::BitCast(df, hn::InterleaveLower(dd, ab_low, ce_low)), df, out + d * pitch);
    hn::Store(hn::BitCast(df, hn::InterleaveUpper(dd, ab_low, ce_low)), df, out + (d + 1) * pitch);
    hn::Store(hn::BitCast(df, hn::InterleaveLower(dd, ab_high, ce_high)), df, out + (d + 2) * pitch);
    hn::Store(hn::BitCast(df, hn::InterleaveUpper(dd, ab_high, ce_high)), df, out + (d + 3) * pitch);
  }
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  for (; d < dim; ++d) {
    for (int64_t i = 0; i < lanes; ++i) out[d * pitch + i] = rows.at[i][d];
  }
}
#endif

// Walks positions page by page, so that the division by page_size happens once a panel.
struct Cursor {
  const IndexWork& work;
  int64_t position, page_index, offset;

  Cursor(const IndexWork& work_in, int64_t position_in)
      : work(work_in),
        position(position_in),
        page_index(position_in / work_in.problem->page_size),
        offset(position_in % work_in.problem->page_size) {}

  void Advance() {
    ++position;
    if (++offset == work.problem->page_size) offset = 0, ++page_index;
  }
};

// The key's floats: in the pool itself when they are floats there, else decoded to `scratch`. Zeros behind the end and,
// with a NaN scale, behind a damaged page.
HWY_INLINE const float* DecodeKey(const Cursor& at, float* scratch, float* scale, bool* scaled) {
  const IndexSelectProblem& p = *at.work.problem;
  const IndexSelectBuffers& b = *at.work.buffers;
  *scale = 1.0f;
  const int64_t page = at.position < at.work.end ? b.page_table(at.work.sequence, at.page_index) : -1;
  if (page < 0 || page >= b.keys.pages) {
    std::fill(scratch, scratch + p.index_dim, 0.0f);
    if (at.position < at.work.end) {
      *scale = std::numeric_limits<float>::quiet_NaN();
      *scaled = true;
    }
    return scratch;
  }
  const std::byte* base = b.keys.data + page * b.keys.page_stride_bytes;
  const int64_t first = at.offset * p.index_dim;
  if (p.keys == KeyFormat::f32) return reinterpret_cast<const float*>(base) + first;
  if (p.keys == KeyFormat::bf16) {
    DecodeFloats(base + first * 2, DType::bf16, p.index_dim, scratch);
  } else {
    DecodeFloats(base + first, DType::e4m3, p.index_dim, scratch);
    std::memcpy(scale, base + p.page_size * p.index_dim + at.offset * 4, 4);
  }
  return scratch;
}

HWY_INLINE void LoadPanel(const IndexWork& work, Panel& panel, float* scratch) {
  const int64_t width = PanelWidth(), dim = work.problem->index_dim;
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  panel.scaled = work.problem->keys == KeyFormat::fp8;
  Cursor cursor(work, panel.first);
  for (int64_t lane = 0; lane < width; lane += lanes) {
    KeyRows rows;
    for (int64_t i = 0; i < lanes; ++i, cursor.Advance()) {
      rows.at[i] = DecodeKey(cursor, scratch + i * dim, panel.scale + lane + i, &panel.scaled);
    }
    Transpose(rows, dim, panel.keys + lane, width);
  }
}

// Adds weight * relu(q . key) of kH heads to the panel's scores. q: [dim, kH].
template <int kH>
HWY_INLINE void ScoreGroup(const Panel& panel, int64_t dim, const float* HWY_RESTRICT q,
                           const float* HWY_RESTRICT weight, float* HWY_RESTRICT score) {
  const F32 df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  Vec acc[kH][kVectors];
  for (auto& line : acc) {
    for (auto& a : line) a = hn::Zero(df);
  }
  const float* HWY_RESTRICT keys = panel.keys;
  for (int64_t d = 0; d < dim; ++d, keys += kVectors * lanes, q += kH) {
    Vec k[kVectors];
    for (int i = 0; i < kVectors; ++i) k[i] = hn::Load(df, keys + i * lanes);
    for (int h = 0; h < kH; ++h) {
      const Vec qv = hn::Set(df, q[h]);
      for (int i = 0; i < kVectors; ++i) acc[h][i] = hn::MulAdd(qv, k[i], acc[h][i]);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    Vec sum = hn::Load(df, score + i * lanes);
    for (int h = 0; h < kH; ++h) {  // NaN > 0 is false: relu(NaN) is 0
      const Vec positive = hn::IfThenElseZero(hn::Gt(acc[h][i], hn::Zero(df)), acc[h][i]);
      sum = hn::MulAdd(hn::Set(df, weight[h]), positive, sum);
    }
    hn::Store(sum, df, score + i * lanes);
  }
}

HWY_INLINE void ScoreHeads(int heads, const Panel& panel, int64_t dim, const float* q, const float* weight,
                           float* score) {
  switch (heads) {
    case 1: return ScoreGroup<1>(panel, dim, q, weight, score);
    case 2: return ScoreGroup<2>(panel, dim, q, weight, score);
    case 3: return ScoreGroup<3>(panel, dim, q, weight, score);
    case 4: return ScoreGroup<4>(panel, dim, q, weight, score);
#if HWY_TARGET <= HWY_AVX3
    case 5: return ScoreGroup<5>(panel, dim, q, weight, score);
    case 6: return ScoreGroup<6>(panel, dim, q, weight, score);
    case 7: return ScoreGroup<7>(panel, dim, q, weight, score);
    case 8: return ScoreGroup<8>(panel, dim, q, weight, score);
#endif
    default: return;
  }
}

// q of one token, groups of heads one after the other, each [dim, heads of the group].
HWY_INLINE void LoadQuery(const IndexWork& work, int64_t token, float* out, float* line) {
  const IndexSelectProblem& p = *work.problem;
  const HeadTensor& q = work.buffers->q;
  for (int64_t first = 0; first < p.index_heads; first += kGroup) {
    const int64_t heads = std::min<int64_t>(kGroup, p.index_heads - first);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t index = token * q.token_stride + (first + h) * q.head_stride;
      DecodeFloats(static_cast<const std::byte*>(q.data) + index * bytes_of(p.q_type), p.q_type, p.index_dim, line);
      for (int64_t d = 0; d < p.index_dim; ++d) out[first * p.index_dim + d * heads + h] = line[d];
    }
  }
}

HWY_INLINE void ScoreToken(const IndexWork& work, const IndexToken& token, const Panel& panel, const float* q,
                           float* score) {
  const IndexSelectProblem& p = *work.problem;
  const int64_t width = PanelWidth();
  std::fill(score, score + width, 0.0f);
  const float* weight = work.buffers->weight.row(token.token);
  for (int64_t first = 0; first < p.index_heads; first += kGroup) {
    const auto heads = static_cast<int>(std::min<int64_t>(kGroup, p.index_heads - first));
    ScoreHeads(heads, panel, p.index_dim, q + first * p.index_dim, weight + first, score);
  }
  for (int64_t i = 0; i < width && panel.scaled; ++i) score[i] *= panel.scale[i];
  const int64_t begin = std::max(token.first, panel.first);
  const int64_t end = std::min({token.last, panel.first + width, work.end});
  token.selector->push(score + (begin - panel.first), end - begin, static_cast<int32_t>(begin));
}

void ScorePositions(const IndexWork& work) {
  const IndexSelectProblem& p = *work.problem;
  const int64_t width = PanelWidth(), dim = p.index_dim;
  const int64_t q_floats = p.index_heads * dim;
  const auto tokens = static_cast<int64_t>(work.tokens.size());
  const int64_t row_floats = kMostLanes * round_up(dim, 16);
  Panel panel{0, work.scratch->get(dim * width + 2 * width + row_floats + tokens * q_floats), nullptr, false};
  float* score = panel.keys + dim * width;
  panel.scale = score + width;
  float* key_rows = panel.scale + width;
  float* q = key_rows + row_floats;
  for (int64_t t = 0; t < tokens; ++t) {
    LoadQuery(work, work.tokens[static_cast<size_t>(t)].token, q + t * q_floats, key_rows);
  }
  for (panel.first = work.begin; panel.first < work.end; panel.first += width) {
    LoadPanel(work, panel, key_rows);
    for (int64_t t = 0; t < tokens; ++t) {
      const IndexToken& token = work.tokens[static_cast<size_t>(t)];
      if (token.last <= panel.first || token.first >= panel.first + width) continue;
      ScoreToken(work, token, panel, q + t * q_floats, score);
    }
  }
}

}  // namespace winnow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::cpu {
HWY_EXPORT(ScorePositions);
void score_positions(const IndexWork& work) { HWY_DYNAMIC_DISPATCH(ScorePositions)(work); }
}  // namespace winnow::cpu
#endif
