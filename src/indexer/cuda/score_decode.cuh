// SPDX-License-Identifier: Apache-2.0
// Index scores for few query tokens per sequence (decode), sm_80 and up: bf16 mma.m16n8k16, keys on M, heads on N.
//   grid   rows * splits CTAs: row fastest, so that tokens of one sequence meet in L2
//   cta    4 warps, each on its own: no barrier after the query is staged. Warp w of a token's splits * 4 takes the
//          tiles w, w + splits * 4, ...: even shares whatever the length
//   smem   per warp a ring of 4 KB tiles filled by cp.async, each lane copies and reads only its own pieces; the query
//   as
//          B fragments, which then stay in registers (64 at 32 heads)
//   bound  DRAM: 132 bytes a key; next the integer conversion of e4m3 (9 instructions for 4 values with the NaN test)
// One bf16 path serves all four pairs of types: e4m3 fits into bf16 exactly, products of bf16 are exact in float, and
// the query takes the power of two that keys lack, so no multiplication is spent on keys.
// kVector: keys are 16-byte aligned and a page holds whole tiles. Without it every row finds its own page.
#pragma once

#include "indexer/cuda/device.cuh"
#include "indexer/cuda/instance.cuh"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::cuda::indexer {

// Head tiles whose B fragments stay in registers; the last one of 32 or 64 heads is read from shared memory each time,
// which leaves room for a fourth CTA per SM.
template <int kTiles>
constexpr int kHeldTiles = kTiles >= 4 ? kTiles - 1 : kTiles;

template <class Keys>
struct DecodeRing {
  static constexpr int kRows = 2 * Keys::kDecodeBlocks;  // rows of a tile that a lane copies: lane / 4 + 8 * r
  uint4 piece[DecodeShape::kStages][kRows][Keys::kPieces][32];
  float scale[DecodeShape::kStages][32];  // of the row that the lane stores
};

template <class Keys, int kTiles>
struct alignas(16) DecodeSmem {
  StagedQuery<kTiles> query;
  DecodeRing<Keys> ring[DecodeShape::kWarps];
  float weight[kTiles * kHeadTile];
};
static_assert(sizeof(DecodeSmem<Fp8Keys, 4>) == DecodeShape::shared_bytes(4));
static_assert(sizeof(DecodeSmem<Bf16Keys, 8>) == DecodeShape::shared_bytes(8));

__device__ inline void copy_16(void* shared, const void* global, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes)
               : "memory");
}
__device__ inline void copy_4(void* shared, const void* global, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <class Keys>
constexpr int kDecodeTileKeys = 16 * Keys::kDecodeBlocks;

// Row of a tile whose score this lane stores after the reduction; of 16-key tiles the even lanes store.
template <class Keys>
__device__ inline int store_row(int lane) {
  return Keys::kDecodeBlocks == 2 ? lane / 4 + lane % 4 * 8 : lane / 4 + (lane & 2) * 4;
}
template <class Keys>
__device__ inline bool stores(int lane) {
  return Keys::kDecodeBlocks == 2 || (lane & 1) == 0;
}

// Where the rows of a tile lie, fetched one tile ahead of their use. kVector: one page for all.
template <class Keys, bool kVector>
struct TilePlace {
  static constexpr int kPlaces = kVector ? 1 : DecodeRing<Keys>::kRows;
  int32_t page[kPlaces];    // -1: none
  int32_t offset[kPlaces];  // of the tile's first row (kVector), or of the row

  __device__ void find(const ScoreParams& p, const int32_t* table, Window w, int32_t tile, int lane) {
    const auto size = static_cast<int32_t>(p.sequences.page_size.divisor);
#pragma unroll
    for (int r = 0; r < kPlaces; ++r) {
      const int32_t position = tile * kDecodeTileKeys<Keys> + (kVector ? 0 : lane / 4 + 8 * r);
      const int32_t index = p.sequences.page_size.divide(position);
      offset[r] = position - index * size;
      page[r] = -1;
      if (kVector || (position >= w.begin && position < w.end)) page[r] = table[index];
    }
  }
};

template <class Keys>
__device__ inline void copy_scale(float& target, const ScoreParams& p, const uint8_t* page, int32_t offset) {
  const auto size = static_cast<int32_t>(p.sequences.page_size.divisor);
  copy_4(&target, page + int64_t{size} * kDim + int64_t{offset} * 4, 4);
}

// Rows outside the window and rows of damaged pages become zeros; the score of a damaged page is NaN.
template <class Keys>
__device__ inline void copy_tile(DecodeRing<Keys>& ring, int stage, const ScoreParams& p, Window w, int32_t tile,
                                 const TilePlace<Keys, true>& place, int lane) {
  constexpr int kTile = kDecodeTileKeys<Keys>;
  const int32_t first = tile * kTile;
  const bool page_good = place.page[0] >= 0 && place.page[0] < p.sequences.pages;
  const uint8_t* page = p.keys + (page_good ? place.page[0] : 0) * p.key_page_stride;
  const uint8_t* source = page + int64_t{place.offset[0] + lane / 4} * Keys::kRowBytes + lane % 4 * 16;
  const bool whole = page_good && first >= w.begin && first + kTile <= w.end;
#pragma unroll
  for (int r = 0; r < DecodeRing<Keys>::kRows; ++r) {
    const int32_t position = first + lane / 4 + 8 * r;
    const int bytes = whole || (page_good && position >= w.begin && position < w.end) ? 16 : 0;
#pragma unroll
    for (int v = 0; v < Keys::kPieces; ++v) {
      copy_16(&ring.piece[stage][r][v][lane], source + r * 8 * Keys::kRowBytes + v * 64, bytes);
    }
  }
  if (Keys::kFp8 && page_good) {
    copy_scale<Keys>(ring.scale[stage][lane], p, page, place.offset[0] + store_row<Keys>(lane));
  } else {
    ring.scale[stage][lane] = page_good ? 1.0f : __uint_as_float(0x7FC00000);
  }
}

template <class Keys>
__device__ inline void copy_tile(DecodeRing<Keys>& ring, int stage, const ScoreParams& p, Window, int32_t,
                                 const TilePlace<Keys, false>& place, int lane) {
#pragma unroll
  for (int r = 0; r < DecodeRing<Keys>::kRows; ++r) {
    const bool good = place.page[r] >= 0 && place.page[r] < p.sequences.pages;
    const uint8_t* page = p.keys + (good ? place.page[r] : 0) * p.key_page_stride;
    const uint8_t* source = page + int64_t{place.offset[r]} * Keys::kRowBytes + lane % 4 * 16;
    for (int word = 0; word < 4 * Keys::kPieces; ++word) {
      auto* target = reinterpret_cast<uint32_t*>(&ring.piece[stage][r][word / 4][lane]) + word % 4;
      copy_4(target, good ? source + word / 4 * 64 + word % 4 * 4 : p.keys, good ? 4 : 0);
    }
    if (store_row<Keys>(lane) != lane / 4 + 8 * r) continue;
    if (Keys::kFp8 && good) {
      copy_scale<Keys>(ring.scale[stage][lane], p, page, place.offset[r]);
    } else {
      ring.scale[stage][lane] = good ? 1.0f : __uint_as_float(0x7FC00000);
    }
  }
}

// Sixteen keys against all heads: sums of rows lane / 4 and lane / 4 + 8 over this lane's heads; sets bits of `nan` for
// rows in which this lane saw a NaN code. Registers are scarce: pieces and weights are fetched as they are used.
template <class Keys, int kTiles>
__device__ inline void score_block(float& sum_low, float& sum_high, uint32_t& nan,
                                   const uint4 (&piece)[2 * Keys::kDecodeBlocks][Keys::kPieces][32], int block,
                                   const uint4 (&b)[kHeldTiles<kTiles>][kKSteps / 2], const StagedQuery<kTiles>& query,
                                   const float* weight, int lane) {
  float acc[kTiles][4] = {};
#pragma unroll
  for (int v = 0; v < Keys::kPieces; ++v) {
    const uint4 low = piece[2 * block][v][lane], high = piece[2 * block + 1][v][lane];
    if (Keys::has_nan(low)) nan |= 1u << (2 * block);
    if (Keys::has_nan(high)) nan |= 2u << (2 * block);
#pragma unroll
    for (int i = 0; i < Keys::kStepsPerPiece; ++i) {
      const int step = v * Keys::kStepsPerPiece + i;
      uint32_t a[4];
      Keys::fragment(a, low, high, i);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 pair = n < kHeldTiles<kTiles> ? b[n][step / 2] : query.fragment[n][step / 2][lane];
        mma(acc[n], a, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
      }
    }
  }
  sum_low = sum_high = 0;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    add_heads(sum_low, sum_high, acc[n], *reinterpret_cast<const float2*>(&weight[n * kHeadTile + lane % 4 * 2]));
  }
}

template <class Keys, int kTiles>
__device__ inline float score_tile(const DecodeRing<Keys>& ring, int stage,
                                   const uint4 (&b)[kHeldTiles<kTiles>][kKSteps / 2], const StagedQuery<kTiles>& query,
                                   const float* weight, int lane) {
  float sum[4];
  uint32_t nan = 0;  // bit r: row lane / 4 + 8 * r
#pragma unroll
  for (int block = 0; block < Keys::kDecodeBlocks; ++block) {
    score_block<Keys, kTiles>(sum[2 * block], sum[2 * block + 1], nan, ring.piece[stage], block, b, query, weight,
                              lane);
    __syncwarp();  // one block after the other: overlapped they cost a fourth CTA per SM its registers
  }
  float score = Keys::kDecodeBlocks == 2 ? reduce_four_rows(sum, lane) : reduce_two_rows(sum[0], sum[1], lane);
  if (__any_sync(~0u, nan != 0)) {  // rare
    nan |= __shfl_xor_sync(~0u, nan, 1);
    nan |= __shfl_xor_sync(~0u, nan, 2);
    if ((nan >> (lane % 4) & 1) != 0) score = sum_of_nan_key(score);
  }
  return score * ring.scale[stage][lane];
}

template <class Keys, int kTiles, bool kVector>
__global__ void __launch_bounds__(DecodeShape::kWarps * 32, kVector ? DecodeShape::ctas_per_sm(kTiles) : 2)
    score_decode(const __grid_constant__ ScoreParams p) {
  let_next_kernel_start();
  extern __shared__ uint4 dynamic_shared[];
  auto& smem = *reinterpret_cast<DecodeSmem<Keys, kTiles>*>(dynamic_shared);
  const int32_t row = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(p.rows));
  const int32_t split = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(p.rows));
  const int64_t token = p.first_token + row;
  const Window w = window_of(p.sequences, token);
  if (w.count() <= p.topk) return;  // every position is selected: the whole CTA agrees

  constexpr int kStages = DecodeShape::kStages, kTile = kDecodeTileKeys<Keys>;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  auto& ring = smem.ring[warp];
  const int32_t* table = p.sequences.page_table + p.sequences.seq[token] * p.sequences.table_stride;
  const int32_t stride = p.splits * DecodeShape::kWarps;
  const int32_t first = w.begin / kTile + split * DecodeShape::kWarps + warp;
  const int32_t tiles_end = (w.end + kTile - 1) / kTile;

  TilePlace<Keys, kVector> place;
  if (first < tiles_end) place.find(p, table, w, first, lane);
  const auto advance = [&](int stage, int32_t tile) {  // copies one tile and finds the next one's place
    if (tile < tiles_end) copy_tile<Keys>(ring, stage, p, w, tile, place, lane);
    commit_copies();
    if (tile + stride < tiles_end) place.find(p, table, w, tile + stride, lane);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) advance(stage, first + stage * stride);
  stage_heads<Keys, kTiles, DecodeShape::kWarps>(smem.query, smem.weight, p, token, warp, lane);
  __syncthreads();
  uint4 b[kHeldTiles<kTiles>][kKSteps / 2];
#pragma unroll
  for (int n = 0; n < kHeldTiles<kTiles>; ++n) {
#pragma unroll
    for (int k = 0; k < kKSteps / 2; ++k) b[n][k] = smem.query.fragment[n][k][lane];
  }

  float* out = p.scores + row * p.pitch;
  int stage = 0;
  for (int32_t tile = first; tile < tiles_end; tile += stride) {
    // Into the stage that the last step has read.
    advance(stage == 0 ? kStages - 1 : stage - 1, tile + (kStages - 1) * stride);
    wait_copies<kStages - 1>();
    const float score = score_tile<Keys, kTiles>(ring, stage, b, smem.query, smem.weight, lane);
    const int32_t position = tile * kTile + store_row<Keys>(lane);
    if (stores<Keys>(lane) && in_whole_groups(w, position)) out[position] = score;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

// What an instance file compiles: the kernels of one key format, with aligned tiles and without.
template <class Keys, bool kVector>
[[nodiscard]] ScoreKernel decode_kernel(int tiles) {
  switch (tiles) {
    case 1: return score_decode<Keys, 1, kVector>;
    case 2: return score_decode<Keys, 2, kVector>;
    case 4: return score_decode<Keys, 4, kVector>;
    default: return score_decode<Keys, 8, kVector>;
  }
}

template <class Keys>
[[nodiscard]] Status launch_decode(const char* name, const ScoreParams& params, int tiles, cudaStream_t stream) {
  const ScoreKernel kernel = params.key_vector ? decode_kernel<Keys, true>(tiles) : decode_kernel<Keys, false>(tiles);
  const auto ctas = static_cast<uint32_t>(int64_t{params.rows} * params.splits);
  kernel<<<ctas, DecodeShape::kWarps * 32, DecodeShape::shared_bytes(tiles), stream>>>(params);
  return launch_status(name);
}

template <class Keys>
[[nodiscard]] Status init_decode(const char* name) {
  for (const int tiles : kCompiledTiles) {
    WINNOW_TRY(allow_shared(decode_kernel<Keys, true>(tiles), name, DecodeShape::shared_bytes(tiles)));
    WINNOW_TRY(allow_shared(decode_kernel<Keys, false>(tiles), name, DecodeShape::shared_bytes(tiles)));
  }
  return {};
}

}  // namespace winnow::cuda::indexer
