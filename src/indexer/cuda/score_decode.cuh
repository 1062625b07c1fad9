// SPDX-License-Identifier: Apache-2.0
// Index scores for few query tokens per sequence (decode), sm_80 and up: bf16 mma.m16n8k16, keys on M, heads on N.
//   grid   rows * splits CTAs: row fastest, so that tokens of one sequence meet in L2
//   cta    4 warps, each on its own: no barrier after the query is staged. Warp w of a token's splits * 4 takes the
//          16-key tiles w, w + splits * 4, ...: even shares whatever the length
//   smem   per warp a ring of tiles filled by cp.async, each lane copies and reads only its own pieces; the query as B
//          fragments, which then stay in registers (64 at 32 heads)
//   bound  DRAM: 132 bytes a key; next the integer conversion of e4m3 (9 instructions for 4 values with the NaN test)
// One bf16 path serves all four pairs of types: e4m3 fits into bf16 exactly, products of bf16 are exact in float, and
// the query takes the power of two that keys lack, so no multiplication is spent on keys.
#pragma once

#include "indexer/cuda/device.cuh"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::cuda::indexer {

template <class Keys>
struct DecodeRing {
  static constexpr int kStages = DecodeShape::stages(Keys::kFp8 ? KeyFormat::fp8 : KeyFormat::bf16);
  uint4 piece[kStages][2][Keys::kPieces][32];  // row half, piece, lane
  float scale[kStages][32];                    // of the row that the lane stores, see store_row
};

template <class Keys, int kTiles>
struct alignas(16) DecodeSmem {
  StagedQuery<kTiles> query;
  DecodeRing<Keys> ring[DecodeShape::kWarps];
  float weight[kTiles * kHeadTile];
};
static_assert(sizeof(DecodeSmem<Fp8Keys, 4>) == DecodeShape::shared_bytes(KeyFormat::fp8, 4));
static_assert(sizeof(DecodeSmem<Bf16Keys, 8>) == DecodeShape::shared_bytes(KeyFormat::bf16, 8));

__device__ inline void copy_16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_4(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(global), "r"(valid ? 4 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Pages of rows g and g + 8 of a tile, fetched one tile ahead of their use; -1 for rows outside the window.
struct PagePair {
  int32_t low, high;
};
__device__ inline PagePair lookup_pages(const ScoreParams& p, const int32_t* table, Window w, int32_t tile, int g) {
  const int32_t first = tile * DecodeShape::kTileKeys;
  if (first >= w.end) return {-1, -1};
  if (p.key_vector) {  // one page holds the tile
    const int32_t page = table[p.sequences.page_size.divide(first)];
    return {page, page};
  }
  const int32_t low = first + g, high = first + g + 8;
  return {low >= w.begin && low < w.end ? table[p.sequences.page_size.divide(low)] : -1,
          high >= w.begin && high < w.end ? table[p.sequences.page_size.divide(high)] : -1};
}

template <class Keys>
__device__ inline void copy_row(uint4 (&target)[Keys::kPieces][32], const ScoreParams& p, int32_t page, int32_t offset,
                                int lane, bool valid) {
  const uint8_t* source = p.keys;  // a legal address for rows that are not read
  if (valid) source += page * p.key_page_stride + int64_t{offset} * Keys::kRowBytes + lane % 4 * 16;
#pragma unroll
  for (int v = 0; v < Keys::kPieces; ++v) {
    if (p.key_vector) {
      copy_16(&target[v][lane], source + (valid ? v * 64 : 0), valid);
    } else {
      for (int i = 0; i < 4; ++i) {
        copy_4(reinterpret_cast<uint32_t*>(&target[v][lane]) + i, source + (valid ? v * 64 + i * 4 : 0), valid);
      }
    }
  }
}

// Row of a tile whose score this lane stores after reduce_rows.
__device__ inline int store_row(int lane) { return lane / 4 + (lane & 2) * 4; }

template <class Keys>
__device__ inline void copy_tile(DecodeRing<Keys>& ring, int stage, const ScoreParams& p, Window w, int32_t tile,
                                 PagePair pages, int lane) {
  const int32_t first = tile * DecodeShape::kTileKeys;
  const auto size = static_cast<int32_t>(p.sequences.page_size.divisor);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t position = first + lane / 4 + 8 * half;
    const int32_t page = half == 0 ? pages.low : pages.high;
    const bool inside = position >= w.begin && position < w.end;
    const bool valid = inside && page >= 0 && page < p.sequences.pages;
    const int32_t offset = position - p.sequences.page_size.divide(position) * size;
    copy_row<Keys>(ring.piece[stage][half], p, page, offset, lane, valid);
    if (half != (lane & 2) / 2) continue;  // the lane's own row, see store_row
    if (Keys::kFp8 && valid) {
      copy_4(&ring.scale[stage][lane], p.keys + page * p.key_page_stride + int64_t{size} * kDim + int64_t{offset} * 4,
             true);
    } else {
      ring.scale[stage][lane] = valid ? 1.0f : __uint_as_float(0x7FC00000);  // damaged page: NaN
    }
  }
}

// Sum over the four lanes of a row: lanes 0 and 1 of a quad end with row g, lanes 2 and 3 with row g + 8.
__device__ inline float reduce_rows(float low, float high, int lane) {
  const bool upper = (lane & 2) != 0;
  const float kept = upper ? high : low, sent = upper ? low : high;
  const float pair = kept + __shfl_xor_sync(~0u, sent, 2);
  return pair + __shfl_xor_sync(~0u, pair, 1);
}

template <class Keys, int kTiles>
__device__ inline float score_tile(const DecodeRing<Keys>& ring, int stage, const uint4 (&b)[kTiles][kKSteps / 2],
                                   const float2 (&weight)[kTiles], int lane) {
  uint4 low[Keys::kPieces], high[Keys::kPieces];
#pragma unroll
  for (int v = 0; v < Keys::kPieces; ++v) {
    low[v] = ring.piece[stage][0][v][lane];
    high[v] = ring.piece[stage][1][v][lane];
  }
  float acc[kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kKSteps; ++step) {
    uint32_t a[4];
    Keys::fragment(a, low, high, step);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint4& pair = b[n][step / 2];
      mma(acc[n], a, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
    }
  }
  float sum_low = 0, sum_high = 0;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) add_heads(sum_low, sum_high, acc[n], weight[n]);
  float sum = reduce_rows(sum_low, sum_high, lane);
  if constexpr (Keys::kFp8) {
    const uint32_t nan_low = __ballot_sync(~0u, Keys::has_nan(low));
    const uint32_t nan_high = __ballot_sync(~0u, Keys::has_nan(high));
    const uint32_t mine = (lane & 2) != 0 ? nan_high : nan_low;
    if ((mine >> (lane & ~3) & 0xF) != 0) sum = sum_of_nan_key(sum);
  }
  return sum * ring.scale[stage][lane];
}

template <class Keys, int kTiles>
__global__ void __launch_bounds__(DecodeShape::kWarps * 32, DecodeShape::ctas_per_sm(kTiles))
    score_decode(const __grid_constant__ ScoreParams p) {
  extern __shared__ uint4 dynamic_shared[];
  auto& smem = *reinterpret_cast<DecodeSmem<Keys, kTiles>*>(dynamic_shared);
  const int32_t row = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(p.rows));
  const int32_t split = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(p.rows));
  const int64_t token = p.first_token + row;
  const Window w = window_of(p.sequences, token);
  if (w.count() <= p.topk) return;  // every position is selected: the whole CTA agrees

  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  constexpr int kStages = DecodeRing<Keys>::kStages;
  auto& ring = smem.ring[warp];
  const int32_t* table = p.sequences.page_table + p.sequences.seq[token] * p.sequences.table_stride;
  const int32_t stride = p.splits * DecodeShape::kWarps;
  const int32_t first = w.begin / DecodeShape::kTileKeys + split * DecodeShape::kWarps + warp;
  const int32_t tiles_end = (w.end + DecodeShape::kTileKeys - 1) / DecodeShape::kTileKeys;

  int32_t ahead = first;
  PagePair pages = lookup_pages(p, table, w, ahead, lane / 4);
  const auto advance = [&](int stage) {  // copies one tile and looks up the next one's pages
    if (ahead < tiles_end) copy_tile<Keys>(ring, stage, p, w, ahead, pages, lane);
    commit_copies();
    ahead += stride;
    if (ahead < tiles_end) pages = lookup_pages(p, table, w, ahead, lane / 4);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) advance(stage);
  for (int head = warp; head < kTiles * kHeadTile; head += DecodeShape::kWarps) {
    stage_head<Keys>(smem.query, smem.weight, p, token, head, lane);
  }
  __syncthreads();
  uint4 b[kTiles][kKSteps / 2];
  float2 weight[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int k = 0; k < kKSteps / 2; ++k) b[n][k] = smem.query.fragment[n][k][lane];
    weight[n] = *reinterpret_cast<const float2*>(&smem.weight[n * kHeadTile + lane % 4 * 2]);
  }

  float* out = p.scores + row * p.pitch;
  int stage = 0;
  for (int32_t tile = first; tile < tiles_end; tile += stride) {
    advance((stage + kStages - 1) % kStages);  // the slot that the last step has read
    wait_copies<kStages - 1>();
    const float score = score_tile<Keys, kTiles>(ring, stage, b, weight, lane);
    const int32_t position = tile * DecodeShape::kTileKeys + store_row(lane);
    if ((lane & 1) == 0 && position >= w.begin && position < w.end) out[position] = score;
    stage = (stage + 1) % kStages;
  }
}

}  // namespace winnow::cuda::indexer
