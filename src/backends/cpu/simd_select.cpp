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

#if HWY_TARGET != HWY_SCALAR
// Four keys of `dim` floats each into four columns of the panel, by 4 x 4 blocks.
HWY_INLINE void TransposeFour(const float* HWY_RESTRICT keys, int64_t dim, float* HWY_RESTRICT out, int64_t pitch) {
  const hn::FixedTag<float, 4> d4;
  const hn::FixedTag<double, 2> d2;
  int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    const auto a = hn::LoadU(d4, keys + d), b = hn::LoadU(d4, keys + dim + d);
    const auto c = hn::LoadU(d4, keys + 2 * dim + d), e = hn::LoadU(d4, keys + 3 * dim + d);
    const auto ab_low = hn::BitCast(d2, hn::InterleaveLower(d4, a, b));
    const auto ce_low = hn::BitCast(d2, hn::InterleaveLower(d4, c, e));
    const auto ab_high = hn::BitCast(d2, hn::InterleaveUpper(d4, a, b));
    const auto ce_high = hn::BitCast(d2, hn::InterleaveUpper(d4, c, e));
    hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_low, ce_low)), d4, out + d * pitch);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_low, ce_low)), d4, out + (d + 1) * pitch);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_high, ce_high)), d4, out + (d + 2) * pitch);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_high, ce_high)), d4, out + (d + 3) * pitch);
  }
  for (; d < dim; ++d) {
    for (int64_t i = 0; i < 4; ++i) out[d * pitch + i] = keys[i * dim + d];
  }
}
#endif

// One key to floats; zeros and a NaN scale when its page is damaged, zeros behind the end.
HWY_INLINE void DecodeKey(const IndexWork& work, int64_t position, float* out, float* scale, bool* scaled) {
  const IndexSelectProblem& p = *work.problem;
  const IndexSelectBuffers& b = *work.buffers;
  *scale = 1.0f;
  std::fill(out, out + p.index_dim, 0.0f);
  if (position >= work.end) return;
  const int64_t page = b.page_table(work.sequence, position / p.page_size);
  if (page < 0 || page >= b.keys.pages) {
    *scale = std::numeric_limits<float>::quiet_NaN();
    *scaled = true;
    return;
  }
  const std::byte* base = b.keys.data + page * b.keys.page_stride_bytes;
  const int64_t offset = position % p.page_size;
  const DType type = p.keys == KeyFormat::f32 ? DType::f32 : p.keys == KeyFormat::bf16 ? DType::bf16 : DType::e4m3;
  DecodeFloats(base + offset * p.index_dim * bytes_of(type), type, p.index_dim, out);
  if (p.keys == KeyFormat::fp8) std::memcpy(scale, base + p.page_size * p.index_dim + offset * 4, 4);
}

HWY_INLINE void LoadPanel(const IndexWork& work, Panel& panel, float* four_keys) {
  const int64_t width = PanelWidth(), dim = work.problem->index_dim;
  panel.scaled = work.problem->keys == KeyFormat::fp8;
#if HWY_TARGET == HWY_SCALAR
  for (int64_t lane = 0; lane < width; ++lane) {
    DecodeKey(work, panel.first + lane, four_keys, panel.scale + lane, &panel.scaled);
    for (int64_t d = 0; d < dim; ++d) panel.keys[d * width + lane] = four_keys[d];
  }
#else
  for (int64_t lane = 0; lane < width; lane += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      DecodeKey(work, panel.first + lane + i, four_keys + i * dim, panel.scale + lane + i, &panel.scaled);
    }
    TransposeFour(four_keys, dim, panel.keys + lane, width);
  }
#endif
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
  const int64_t four = round_up(4 * dim, 16);
  Panel panel{0, work.scratch->get(dim * width + 2 * width + four + tokens * q_floats), nullptr, false};
  float* score = panel.keys + dim * width;
  panel.scale = score + width;
  float* four_keys = panel.scale + width;
  float* q = four_keys + four;
  for (int64_t t = 0; t < tokens; ++t) {
    LoadQuery(work, work.tokens[static_cast<size_t>(t)].token, q + t * q_floats, four_keys);
  }
  for (panel.first = work.begin; panel.first < work.end; panel.first += width) {
    LoadPanel(work, panel, four_keys);
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
