// SPDX-License-Identifier: Apache-2.0
// Device pieces shared by the indexer's kernels: parameters, a token's range of positions, page lookup, exact
// conversion of e4m3 to bf16, the mma, and the staging of queries. Device code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "core/cuda_device.cuh"

namespace winnow::cuda::indexer {

constexpr int kDim = 128;     // elements of a key
constexpr int kKSteps = 8;    // mma steps of 16 elements along a key
constexpr int kHeadTile = 8;  // heads of one mma

// n / d for 0 <= n < 2^31 by one wide multiplication: with 2^shift >= 2^31 * d and multiplier = ceil(2^shift / d) the
// error stays below 1 / d.
struct FastDivisor {
  uint32_t divisor = 1, multiplier = 1u << 31, shift = 31;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t d) : divisor(d) {
    shift = 31;
    while ((uint64_t{1} << (shift - 31)) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << shift) + d - 1) / d);
  }
  __host__ __device__ int32_t divide(int32_t n) const {
    return static_cast<int32_t>((static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier) >> shift);
  }
  __host__ __device__ int32_t remainder(int32_t n) const { return n - divide(n) * static_cast<int32_t>(divisor); }
};

// Which positions a token sees and where a position lies. Copies of IndexSelectBuffers' views with plain strides.
struct Sequences {
  const int32_t* page_table;  // [sequences, pages per sequence]
  int64_t table_stride;
  const int32_t* seq;    // [tokens], or null: rows are their own sequence and nothing is paged
  const int32_t* start;  // [tokens], or null: 0
  const int32_t* len;    // [tokens], or null: max_len
  int32_t sequences;
  int32_t max_len;
  int64_t pages;
  FastDivisor page_size;
};

struct Window {
  int32_t begin, end;  // positions [begin, end); equal when there are none
  __device__ int32_t count() const { return end - begin; }
};

__device__ inline int32_t clamp_position(int64_t position, int32_t max_len) {
  return static_cast<int32_t>(position < 0 ? 0 : position > max_len ? max_len : position);
}

__device__ inline Window window_of(const Sequences& s, int64_t token) {
  const int32_t seq = s.seq != nullptr ? s.seq[token] : 0;  // the three loads go out together
  const int64_t start = s.start != nullptr ? s.start[token] : 0;
  const int64_t len = s.len != nullptr ? s.len[token] : s.max_len;
  const Window w{clamp_position(start, s.max_len), clamp_position(start + len, s.max_len)};
  const bool known = static_cast<uint32_t>(seq) < static_cast<uint32_t>(s.sequences);
  return known && w.end > w.begin ? w : Window{0, 0};
}

// Scores are stored in whole aligned groups of four, so that the selection's 16-byte loads read nothing unwritten; it
// ignores what lies outside the window.
__device__ inline bool in_whole_groups(Window w, int32_t position) {
  return position >= (w.begin & ~3) && position < ((w.end + 3) & ~3);
}

__device__ inline int32_t slot_of(const Sequences& s, const int32_t* table, int32_t position) {
  const int32_t index = s.page_size.divide(position);
  const int32_t page = table[index];
  if (page < 0 || page >= s.pages) return -1;  // damaged
  const auto size = static_cast<int32_t>(s.page_size.divisor);
  return page * size + (position - index * size);
}

struct ScoreParams {
  Sequences sequences;
  const void* q;  // [tokens, heads, 128] bf16 or e4m3
  int64_t q_token_stride, q_head_stride;
  const float* weight;  // [tokens, heads]
  int64_t weight_stride;
  const uint8_t* keys;
  int64_t key_page_stride;  // bytes
  float* scores;            // [rows, pitch], column = position
  int64_t pitch;
  int32_t heads;
  int32_t topk;         // tokens that see no more are not scored
  int32_t first_token;  // token of scores row 0
  int32_t rows;
  int32_t splits;  // CTAs per token or group of tokens
  bool q_e4m3;
  bool q_vector;    // four elements of q load at once
  bool key_vector;  // 16-byte loads, and a tile of keys never crosses a page
};

// e4m3 into the bit fields of bf16: value * 2^-120 exactly, subnormals included (they land on bf16 subnormals, which
// mma takes as they are). Bytes 0 and 2 of the word, then bytes 1 and 3: no byte permutation, six integer
// instructions for four values. The NaN codes turn into 480 * 2^-120: see has_nan.
__device__ inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) { return (mask & a) | (~mask & b); }
__device__ inline void widen(uint32_t word, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kMagnitude = 0x07F007F0;
  const uint32_t sign = word & 0x80808080;
  even = select_bits(kMagnitude, word << 4, sign << 8);
  odd = select_bits(kMagnitude, word >> 4, sign);
}
// Bit 7 of each byte tells whether that byte is a NaN code; other bits mean nothing.
__device__ inline uint32_t nan_bits(uint32_t word) { return (word & 0x7F7F7F7F) + 0x01010101; }

// Queries are scaled by this power of two to meet keys * 2^-120: 2^112 unless that would overflow, so that dot products
// stay in the normal range of float for all but absurd inputs. Powers of two are exact.
__device__ inline int query_exponent(float amax) {
  const int exponent = static_cast<int>(__float_as_uint(amax) >> 23) - 127;  // infinity: 128
  return min(112, 126 - exponent);
}
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Lane 4g + t of a warp holds 16-byte pieces of key row g: piece v covers bytes 64v + 16t and on. An mma may take the
// elements of a key in any order that the query takes too, so a piece feeds the A fragments as it was loaded:
//   fp8   step 4v + i: word i of piece v, elements 64v + 16t + 4i + {0,2 | 1,3}
//   bf16  step 2v + i: words 2i and 2i + 1 of piece v, elements 32v + 8t + 4i + {0,1 | 2,3}
struct Fp8Keys {
  static constexpr int kPieces = 2, kRowBytes = 128, kDecodeBlocks = 2;  // blocks of 16 keys in a tile of score_decode
  static constexpr int kStepsPerPiece = 4;
  static constexpr bool kFp8 = true;
  __device__ static uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
  // Step i of a piece of rows g (low) and g + 8 (high).
  __device__ static void fragment(uint32_t (&a)[4], const uint4& low, const uint4& high, int i) {
    widen(word(low, i), a[0], a[2]);
    widen(word(high, i), a[1], a[3]);
  }
  __device__ static bool has_nan(const uint4& v) {
    return ((nan_bits(v.x) | nan_bits(v.y) | nan_bits(v.z) | nan_bits(v.w)) & 0x80808080) != 0;
  }
  // Lane's four elements of a head, 4 * lane and on, as one step's B registers; and where they belong.
  __device__ static uint2 pack(const __nv_bfloat16 (&x)[4]) {
    return {static_cast<uint32_t>(__bfloat16_as_ushort(x[0])) | static_cast<uint32_t>(__bfloat16_as_ushort(x[2])) << 16,
            static_cast<uint32_t>(__bfloat16_as_ushort(x[1])) | static_cast<uint32_t>(__bfloat16_as_ushort(x[3]))
                                                                    << 16};
  }
  __device__ static int step_of(int lane) { return lane / 16 * 4 + lane % 4; }
  __device__ static int t_of(int lane) { return lane % 16 / 4; }
};

struct Bf16Keys {
  static constexpr int kPieces = 4, kRowBytes = 256, kDecodeBlocks = 1;
  static constexpr int kStepsPerPiece = 2;
  static constexpr bool kFp8 = false;
  __device__ static void fragment(uint32_t (&a)[4], const uint4& low, const uint4& high, int i) {
    a[0] = i == 0 ? low.x : low.z;
    a[1] = i == 0 ? high.x : high.z;
    a[2] = i == 0 ? low.y : low.w;
    a[3] = i == 0 ? high.y : high.w;
  }
  __device__ static bool has_nan(const uint4&) { return false; }  // bf16 NaN reaches the mma as itself
  __device__ static uint2 pack(const __nv_bfloat16 (&x)[4]) {
    return {static_cast<uint32_t>(__bfloat16_as_ushort(x[0])) | static_cast<uint32_t>(__bfloat16_as_ushort(x[1])) << 16,
            static_cast<uint32_t>(__bfloat16_as_ushort(x[2])) | static_cast<uint32_t>(__bfloat16_as_ushort(x[3]))
                                                                    << 16};
  }
  __device__ static int step_of(int lane) { return lane / 8 * 2 + lane % 2; }
  __device__ static int t_of(int lane) { return lane % 8 / 2; }
};

// One query token as B fragments in shared memory: tile n, pair of steps, lane -> {step 2k: b0, b1; step 2k+1: b0, b1}.
template <int kTiles>
struct alignas(16) StagedQuery {
  uint4 fragment[kTiles][kKSteps / 2][32];
};

// A lane's four elements of a head as they are stored; e4m3 fills x alone.
__device__ inline uint2 load_query(const ScoreParams& p, int64_t offset) {
  if (p.q_e4m3) {
    const auto* q = static_cast<const uint8_t*>(p.q) + offset;
    if (p.q_vector) return {__ldg(reinterpret_cast<const uint32_t*>(q)), 0};
    return {
        q[0] | static_cast<uint32_t>(q[1]) << 8 | static_cast<uint32_t>(q[2]) << 16 | static_cast<uint32_t>(q[3]) << 24,
        0};
  }
  const auto* q = static_cast<const uint16_t*>(p.q) + offset;
  if (p.q_vector) return __ldg(reinterpret_cast<const uint2*>(q));
  return {q[0] | static_cast<uint32_t>(q[1]) << 16, q[2] | static_cast<uint32_t>(q[3]) << 16};
}

__device__ inline void decode_query(float (&x)[4], uint2 words, bool e4m3) {
  if (e4m3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = __half2float(__nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(words.x >> (8 * i)), __NV_E4M3));
    }
    return;
  }
  x[0] = __uint_as_float(words.x << 16);
  x[1] = __uint_as_float(words.x & 0xFFFF0000u);
  x[2] = __uint_as_float(words.y << 16);
  x[3] = __uint_as_float(words.y & 0xFFFF0000u);
}

// One warp stages a head: B fragments, and the weight with the scaling undone.
template <class Keys, int kTiles>
__device__ inline void stage_head(StagedQuery<kTiles>& staged, float* weight, uint2 words, float w, bool e4m3, int head,
                                  int lane) {
  float x[4];
  decode_query(x, words, e4m3);
  __nv_bfloat16 narrow[4];
  if constexpr (Keys::kFp8) {
    float amax = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));  // fmaxf ignores NaN
#pragma unroll
    for (int step = 16; step > 0; step /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, step));
    const int exponent = query_exponent(amax);
    const float scale = power_of_two(exponent);
#pragma unroll
    for (int i = 0; i < 4; ++i) narrow[i] = __float2bfloat16_rn(x[i] * scale);
    w *= power_of_two(120 - exponent);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) narrow[i] = __float2bfloat16_rn(x[i]);
  }
  const int step = Keys::step_of(lane);
  uint4& target = staged.fragment[head / kHeadTile][step / 2][4 * (head % kHeadTile) + Keys::t_of(lane)];
  reinterpret_cast<uint2*>(&target)[step % 2] = Keys::pack(narrow);
  if (lane == 0) weight[head] = w;
}

// Every kWarps-th head of `token` from head `warp` on. All loads go out before the first is used: one after the other
// they would cost a microsecond each. Heads past the last are zero with weight zero, and add nothing.
template <class Keys, int kTiles, int kWarps>
__device__ inline void stage_heads(StagedQuery<kTiles>& staged, float* weight, const ScoreParams& p, int64_t token,
                                   int warp, int lane) {
  constexpr int kHeads = (kTiles * kHeadTile + kWarps - 1) / kWarps;
  uint2 words[kHeads];
  float w[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = warp + i * kWarps;
    words[i] = {};
    w[i] = 0;
    if (head >= p.heads) continue;
    words[i] = load_query(p, token * p.q_token_stride + head * p.q_head_stride + 4 * lane);
    w[i] = __ldg(p.weight + token * p.weight_stride + head);
  }
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int head = warp + i * kWarps;
    if (head < kTiles * kHeadTile) stage_head<Keys>(staged, weight, words[i], w[i], p.q_e4m3, head, lane);
  }
}

// Head sum of one accumulator tile: acc columns 2t and 2t + 1 are heads, rows g and g + 8 are keys.
// fmaxf(NaN, 0) is 0, as the contract wants it.
__device__ inline void add_heads(float& low, float& high, const float (&acc)[4], float2 w) {
  low = fmaf(w.x, fmaxf(acc[0], 0.0f), low);
  low = fmaf(w.y, fmaxf(acc[1], 0.0f), low);
  high = fmaf(w.x, fmaxf(acc[2], 0.0f), high);
  high = fmaf(w.y, fmaxf(acc[3], 0.0f), high);
}

// Sum of two rows over the four lanes of a quad: lanes 0 and 1 end with the first row, lanes 2 and 3 with the second.
__device__ inline float reduce_two_rows(float first, float second, int lane) {
  const bool upper = (lane & 2) != 0;
  const float kept = upper ? second : first, sent = upper ? first : second;
  const float pair = kept + __shfl_xor_sync(~0u, sent, 2);
  return pair + __shfl_xor_sync(~0u, pair, 1);
}

// Sums of four rows over the four lanes of a quad; lane t keeps row t. All pair lanes alike.
__device__ inline float reduce_four_rows(const float (&sum)[4], int lane) {
  const bool upper = (lane & 2) != 0, odd = (lane & 1) != 0;
  float first = upper ? sum[2] : sum[0], second = upper ? sum[3] : sum[1];
  const float first_sent = upper ? sum[0] : sum[2], second_sent = upper ? sum[1] : sum[3];
  first += __shfl_xor_sync(~0u, first_sent, 2);
  second += __shfl_xor_sync(~0u, second_sent, 2);
  const float kept = odd ? second : first, sent = odd ? first : second;
  return kept + __shfl_xor_sync(~0u, sent, 1);
}

// A key with a NaN code makes every dot product NaN, and max(0, NaN) is 0. NaN of a weight stays.
__device__ inline float sum_of_nan_key(float sum) { return sum == sum ? 0.0f : sum; }

}  // namespace winnow::cuda::indexer
