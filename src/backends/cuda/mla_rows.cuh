// SPDX-License-Identifier: Apache-2.0
// Row formats of the latent cache as the tensor cores want them. One struct per format, the same members:
//   load_q      16 or 32 dimensions of q as B fragments, in the order in which scores() meets the row's dimensions
//   scores      [16 rows] x [8 heads x n] over this warp's latents, added into fp32
//   values      v32_fp8: A fragments of 32 columns x 16 rows, transposed (bf16 needs no more than ldmatrix)
//   store_out   32 columns x 8 heads of the output as bf16
//   store_tile  16 columns x 8 heads
// Fragments of mma.m16n8k16, lane = 4g + t: A rows g, g+8; B column g; C (row g, columns 2t, 2t+1), (row g+8, same).
// Rows of the cache stand on M, heads on N: 8 heads waste nothing. Everything is bf16 with fp32 accumulation.
//
// v32_fp8: a byte of e4m3 moved into bf16 (sign to bit 15, the rest to bits 10..4) is its value times 2^-120, exactly,
// subnormals included. Scales stay out of it: scores are multiplied by the row's scale per group of 128 dimensions,
// values by way of the probabilities. Factors of 2^60 on q and on the probabilities keep both in the range of fp32 for
// scales between about 2^-100 and 2^60. The NaN codes 0x7F and 0xFF read as 480.
#pragma once

#include "backends/cuda/mla_device.cuh"
#include "backends/cuda/mla_tiles.hpp"

namespace winnow::cuda {

inline constexpr float kTwo60 = 1152921504606846976.0f;

struct Bf16Rows {
  static constexpr RowFormat kFormat = RowFormat::bf16;
  static constexpr int kPitch = row_pitch(kFormat);
  static constexpr int kBytesPerLatent = 2;
  static constexpr int kRopeOffset = kLatents * 2;
  static constexpr int kChunks = 72, kChunksNoRope = 64;  // of 16 bytes
  static constexpr bool kScaled = false;
  static constexpr float kOutFactor = 1.0f;

  // Byte offset inside a tile that lane names for the transposed read of 16 columns x 16 rows.
  static __device__ __forceinline__ uint32_t value_lane(int lane) {
    return ((lane & 7) + 8 * (lane >> 4)) * kPitch + ((lane >> 3) & 1) * 16;
  }

  // Two k-steps: dimensions d ... d + 31 of one head. valid is false for padded heads.
  static __device__ __forceinline__ void load_q(uint32_t (&b0)[2], uint32_t (&b1)[2], const uint16_t* head, int d,
                                                int t, bool valid) {
    uint32_t r[4] = {0, 0, 0, 0};
    if (valid) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(head + d + 8 * t));
      r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
    }
    transpose_quad(r);  // lane t held dimensions 8t..8t+7, now holds the pair t of each group of eight
    b0[0] = r[0], b0[1] = r[1], b1[0] = r[2], b1[1] = r[3];
  }

  // Latents and rope of 16 * kM rows. at, rope_at: addresses of this lane's part of the first row. A fragment is asked
  // for before the products of the one in front of it, to hide the latency of ldmatrix.
  template <int kM, int kSteps, int kRopeSteps, int kTiles, class RopeQ>
  static __device__ __forceinline__ void scores(float (&s)[kM][kTiles][4], uint32_t at, uint32_t rope_at,
                                                uint32_t /*row_scales*/, const uint32_t (&q)[kSteps][kTiles][2],
                                                const RopeQ& rope_q) {
    constexpr int kChains = kTiles < 4 ? 2 : 1;  // independent sums, to cover the MMA latency
    constexpr int kRing = kTiles == 2 ? 3 : 2;
    constexpr int kFragments = (kSteps + kRopeSteps) * kM;
    static_assert(kM == 1 || kChains == 1);
    float extra[kChains][kTiles][4] = {};
    uint32_t a[kRing][4], b[kTiles][2];
    const auto load = [&](int f) {
      const int k = f / kM, m = f % kM;
      load_matrices(a[f % kRing], (k < kSteps ? at + k * 32 : rope_at + (k - kSteps) * 32) + m * 16 * kPitch);
    };
#pragma unroll
    for (int f = 0; f < kRing - 1; ++f) load(f);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      if (f + kRing - 1 < kFragments) load(f + kRing - 1);
      const int k = f / kM, m = f % kM;
      // ptxas moves loads of fragments up as long as it sees registers for them, and then spills: not past here.
      if (kTiles == 4 && f == kFragments / 2) __syncwarp();
      if (k >= kSteps && m == 0) rope_q(k - kSteps, b);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        float(&sum)[4] = kChains == 1 ? s[m][n] : extra[k % kChains][n];
        if (k < kSteps)
          multiply_add(sum, a[f % kRing], q[k < kSteps ? k : 0][n]);
        else
          multiply_add(sum, a[f % kRing], b[n]);
      }
    }
    if constexpr (kChains > 1) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int c = 0; c < kChains; ++c) s[0][n][i] += extra[c][n][i];
    }
  }

  // o0, o1: the two m-tiles of these 32 columns (columns 0-7 on rows g, 8-15 on rows g + 8 of each).
  static __device__ __forceinline__ void store_out(uint16_t* head, int column, int d_v, int t, const float (&o0)[4],
                                                   const float (&o1)[4], float2 factor, bool valid) {
    uint32_t r[4] = {transpose_matrix(pack_bf16(o0[0] * factor.x, o0[1] * factor.y)),
                     transpose_matrix(pack_bf16(o0[2] * factor.x, o0[3] * factor.y)),
                     transpose_matrix(pack_bf16(o1[0] * factor.x, o1[1] * factor.y)),
                     transpose_matrix(pack_bf16(o1[2] * factor.x, o1[3] * factor.y))};
    transpose_quad(r);
    if (valid && column + 8 * t < d_v) {
      *reinterpret_cast<uint4*>(head + column + 8 * t) = make_uint4(r[0], r[1], r[2], r[3]);
    }
  }
  static __device__ __forceinline__ void store_tile(uint16_t* head, int column, int d_v, int t, const float (&o)[4],
                                                    float2 factor, bool valid) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = column + half * 8 + t * 2;
      const uint32_t pair = transpose_matrix(pack_bf16(o[half * 2] * factor.x, o[half * 2 + 1] * factor.y));
      if (valid && at < d_v) *reinterpret_cast<uint32_t*>(head + at) = pair;
    }
  }
};

struct Fp8Rows {
  static constexpr RowFormat kFormat = RowFormat::v32_fp8;
  static constexpr int kPitch = row_pitch(kFormat);
  static constexpr int kBytesPerLatent = 1;
  static constexpr int kScaleOffset = kLatents;
  static constexpr int kRopeOffset = kLatents + 16;
  static constexpr int kChunks = 41, kChunksNoRope = 33;
  static constexpr bool kScaled = true;
  static constexpr float kOutFactor = kTwo60;

  static __device__ __forceinline__ uint32_t value_lane(int lane) { return (lane & 15) * kPitch + (lane >> 4) * 16; }

  // Bytes 0 and 2, or 1 and 3, of a word as two bf16 numbers times 2^-120.
  static __device__ __forceinline__ uint32_t even(uint32_t w) {
    return ((w << 4) & 0x07F007F0u) | ((w << 8) & 0x80008000u);
  }
  static __device__ __forceinline__ uint32_t odd(uint32_t w) { return ((w >> 4) & 0x07F007F0u) | (w & 0x80008000u); }

  // A word of ldmatrix holds four neighbouring dimensions; its even bytes become columns 2t, 2t+1 of the fragment and
  // its odd bytes columns 2t+8, 2t+9, so q comes in that order too.
  static __device__ __forceinline__ void load_q(uint32_t (&b0)[2], uint32_t (&b1)[2], const uint16_t* head, int d,
                                                int t, bool valid) {
    load_q_step(b0, head + d, t, valid);
    load_q_step(b1, head + d + 16, t, valid);
  }
  static __device__ __forceinline__ void load_q_step(uint32_t (&b)[2], const uint16_t* dims, int t, bool valid) {
    uint2 v = make_uint2(0, 0);
    if (valid) v = __ldg(reinterpret_cast<const uint2*>(dims + 4 * t));
    b[0] = pack_bf16(low_bf16(v.x) * kTwo60, low_bf16(v.y) * kTwo60);
    b[1] = pack_bf16(high_bf16(v.x) * kTwo60, high_bf16(v.y) * kTwo60);
  }

  // row_scales: address of the scale of this lane's row g at the warp's first group; row g + 8 lies 8 pitches behind.
  template <int kM, int kSteps, int kRopeSteps, int kTiles, class RopeQ>
  static __device__ __forceinline__ void scores(float (&s)[kM][kTiles][4], uint32_t at, uint32_t rope_at,
                                                uint32_t row_scales, const uint32_t (&q)[kSteps][kTiles][2],
                                                const RopeQ& rope_q) {
    constexpr int kGroups = kSteps / 8;  // of 128 dimensions
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const uint32_t rows = at + m * 16 * kPitch, scales = row_scales + m * 16 * kPitch;
      constexpr int kRing = 2;  // raw fragments, the next one asked for ahead
      uint32_t raw[kRing][4];
      if constexpr (kRing == 2) load_matrices(raw[0], rows);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float part[kTiles][4] = {};
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
          const int step = group * 8 + k, now = step / 2 % kRing, ahead = step + 2 * (kRing - 1);
          if (ahead < kSteps) load_matrices(raw[ahead / 2 % kRing], rows + ahead * 16);
          const uint32_t a0[4] = {even(raw[now][0]), even(raw[now][1]), odd(raw[now][0]), odd(raw[now][1])};
#pragma unroll
          for (int n = 0; n < kTiles; ++n) multiply_add(part[n], a0, q[step][n]);
          const uint32_t a1[4] = {even(raw[now][2]), even(raw[now][3]), odd(raw[now][2]), odd(raw[now][3])};
#pragma unroll
          for (int n = 0; n < kTiles; ++n) multiply_add(part[n], a1, q[step + 1][n]);
        }
        const float low = load_shared_float(scales + group * 4) * kTwo60;
        const float high = load_shared_float(scales + group * 4 + 8 * kPitch) * kTwo60;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          s[m][n][0] += low * part[n][0], s[m][n][1] += low * part[n][1];
          s[m][n][2] += high * part[n][2], s[m][n][3] += high * part[n][3];
        }
      }
#pragma unroll
      for (int k = 0; k < kRopeSteps; ++k) {
        uint32_t a[4], b[kTiles][2];
        rope_q(k, b);
        load_matrices(a, rope_at + m * 16 * kPitch + k * 32);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) multiply_add(s[m][n], a, b[n]);
      }
    }
  }

  // Row g of the fragment is column 2g of a group of 16, row g + 8 is column 2g + 1.
  static __device__ __forceinline__ void values(uint32_t (&a0)[4], uint32_t (&a1)[4], uint32_t at) {
    uint32_t raw[4];
    load_matrices_transposed(raw, at);
    a0[0] = even(raw[0]), a0[1] = odd(raw[0]), a0[2] = even(raw[1]), a0[3] = odd(raw[1]);
    a1[0] = even(raw[2]), a1[1] = odd(raw[2]), a1[2] = even(raw[3]), a1[3] = odd(raw[3]);
  }

  static __device__ __forceinline__ void store_out(uint16_t* head, int column, int d_v, int t, const float (&o0)[4],
                                                   const float (&o1)[4], float2 factor, bool valid) {
    store_tile(head, column, d_v, t, o0, factor, valid);
    store_tile(head, column + 16, d_v, t, o1, factor, valid);
  }
  static __device__ __forceinline__ void store_tile(uint16_t* head, int column, int d_v, int t, const float (&o)[4],
                                                    float2 factor, bool valid) {
    const uint32_t even_columns = transpose_matrix(pack_bf16(o[0] * factor.x, o[1] * factor.y));
    const uint32_t odd_columns = transpose_matrix(pack_bf16(o[2] * factor.x, o[3] * factor.y));
    if (valid && column + 4 * t < d_v) {
      *reinterpret_cast<uint2*>(head + column + 4 * t) =
          make_uint2(__byte_perm(even_columns, odd_columns, 0x5410), __byte_perm(even_columns, odd_columns, 0x7632));
    }
  }
};

}  // namespace winnow::cuda
