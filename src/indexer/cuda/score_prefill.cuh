// SPDX-License-Identifier: Apache-2.0
// Index scores for many query tokens of one sequence (prefill), sm_80 and up: bf16 mma.m16n8k16, keys on M, heads on N.
//   grid   groups * splits CTAs: group = queries(tiles) neighbouring tokens, fastest; splits share a group's keys
//   cta    12 warps, each on its own after the queries are staged: a warp keeps 32 keys as A fragments (64 registers,
//          converted once) and goes through the group's queries, B fragments by 16-byte shared loads
//   smem   64 KB of staged queries (8 tokens of 32 heads, 4 of 64), one CTA per SM
//   bound  the tensor pipe: 16 shared loads and 90 other instructions stand against 64 mma per query and 32 keys
// Neighbours of different sequences are legal: the group is worked off in runs of one sequence. Same arithmetic in the
// same order as score_decode, so a token's scores do not depend on which of the two ran.
#pragma once

#include "core/checked.hpp"
#include "indexer/cuda/device.cuh"
#include "indexer/cuda/instance.cuh"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::cuda::indexer {

template <int kTiles>
struct alignas(16) PrefillSmem {
  static constexpr int kQueries = PrefillShape::queries(kTiles);
  StagedQuery<kTiles> query[kQueries];
  float weight[kQueries][kTiles * kHeadTile];
};
static_assert(sizeof(PrefillSmem<4>) == PrefillShape::shared_bytes(4));

template <class Keys>
struct KeyTile {
  uint32_t a[2][kKSteps][4];  // two m-tiles of 16 keys
  float scale;                // of row lane / 4 + 8 * (lane % 4), the one that this lane stores
  bool nan;                   // that row holds a NaN code
};

template <class Keys>
__device__ inline void load_row(uint4 (&row)[Keys::kPieces], const uint8_t* source, bool vector) {
#pragma unroll
  for (int v = 0; v < Keys::kPieces; ++v) {
    if (vector) {
      row[v] = __ldg(reinterpret_cast<const uint4*>(source + v * 64));
    } else {
      const auto* words = reinterpret_cast<const uint32_t*>(source + v * 64);
      row[v] = {__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)};
    }
  }
}

// Keys [32 * tile, + 32) of the sequence; rows outside [w.begin, w.end) are zero.
template <class Keys>
__device__ inline void load_tile(KeyTile<Keys>& tile, const ScoreParams& p, const int32_t* table, Window w,
                                 int32_t index, int lane) {
  const auto size = static_cast<int32_t>(p.sequences.page_size.divisor);
  uint4 row[4][Keys::kPieces];
  uint32_t nan = 0;
  tile.scale = 1.0f;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const int32_t position = index * PrefillShape::kTileKeys + lane / 4 + 8 * x;
    const bool inside = position >= w.begin && position < w.end;
    const int32_t page_index = p.sequences.page_size.divide(position);
    const int32_t page = inside ? __ldg(table + page_index) : -1;
    const bool valid = page >= 0 && page < p.sequences.pages;
    const int32_t offset = position - page_index * size;
#pragma unroll
    for (int v = 0; v < Keys::kPieces; ++v) row[x][v] = {};
    if (valid) {
      const uint8_t* base = p.keys + page * p.key_page_stride;
      load_row<Keys>(row[x], base + int64_t{offset} * Keys::kRowBytes + lane % 4 * 16, p.key_vector);
      if (Keys::kFp8 && x == lane % 4) {
        tile.scale = __ldg(reinterpret_cast<const float*>(base + int64_t{size} * kDim + int64_t{offset} * 4));
      }
    } else if (x == lane % 4) {
      tile.scale = __uint_as_float(0x7FC00000);  // damaged page; rows outside are not stored
    }
  }
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if constexpr (Keys::kFp8) {
      const uint32_t votes = __ballot_sync(~0u, Keys::has_nan(row[x][0]) || Keys::has_nan(row[x][1]));
      if (x == lane % 4) nan = votes >> (lane & ~3) & 0xF;
    }
  }
  tile.nan = nan != 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int step = 0; step < kKSteps; ++step) {
      constexpr int kPer = Keys::kStepsPerPiece;
      Keys::fragment(tile.a[m][step], row[2 * m][step / kPer], row[2 * m + 1][step / kPer], step % kPer);
    }
  }
}

template <class Keys, int kTiles>
__device__ inline float score_query(const KeyTile<Keys>& tile, const StagedQuery<kTiles>& query, const float* weight,
                                    int lane) {
  constexpr int kAtOnce = kTiles == 1 ? 1 : 2;       // head tiles in flight: independent chains of mma
  constexpr int kUnroll = kTiles == 8 ? 2 : kTiles;  // eight tiles unrolled whole spill
  float sum[4] = {};
#pragma unroll kUnroll
  for (int n0 = 0; n0 < kTiles; n0 += kAtOnce) {
    float acc[kAtOnce][2][4] = {};
#pragma unroll
    for (int k = 0; k < kKSteps / 2; ++k) {
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const uint4 b = query.fragment[n0 + n][k][lane];
        mma(acc[n][0], tile.a[0][2 * k], b.x, b.y);
        mma(acc[n][1], tile.a[1][2 * k], b.x, b.y);
        mma(acc[n][0], tile.a[0][2 * k + 1], b.z, b.w);
        mma(acc[n][1], tile.a[1][2 * k + 1], b.z, b.w);
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const float2 w = *reinterpret_cast<const float2*>(&weight[(n0 + n) * kHeadTile + lane % 4 * 2]);
      add_heads(sum[0], sum[1], acc[n][0], w);
      add_heads(sum[2], sum[3], acc[n][1], w);
    }
  }
  float score = reduce_four_rows(sum, lane);
  if (Keys::kFp8 && tile.nan) score = sum_of_nan_key(score);
  return score * tile.scale;
}

// Tokens [first, last) of the group, one sequence, and the union of their windows.
struct Run {
  int first, last;
  Window window;
};
__device__ inline Run next_run(const Sequences& s, const Window* windows, int64_t token0, int first, int count) {
  Run run{first, first + 1, windows[first]};
  while (run.last < count && s.seq[token0 + run.last] == s.seq[token0 + first]) {
    const Window w = windows[run.last++];
    if (w.count() == 0) continue;
    if (run.window.count() == 0) run.window = w;
    run.window = {min(run.window.begin, w.begin), max(run.window.end, w.end)};
  }
  return run;
}

template <class Keys, int kTiles>
__global__ void __launch_bounds__(PrefillShape::kWarps * 32, 1) score_prefill(const __grid_constant__ ScoreParams p) {
  let_next_kernel_start();
  extern __shared__ uint4 dynamic_shared[];
  auto& smem = *reinterpret_cast<PrefillSmem<kTiles>*>(dynamic_shared);
  constexpr int kQueries = PrefillSmem<kTiles>::kQueries;
  __shared__ Window windows[kQueries];  // empty: not scored
  const uint32_t groups = (static_cast<uint32_t>(p.rows) + kQueries - 1) / kQueries;
  const int32_t row0 = static_cast<int32_t>(blockIdx.x % groups) * kQueries;
  const int32_t split = static_cast<int32_t>(blockIdx.x / groups);
  const int64_t token0 = p.first_token + row0;
  const int count = min(kQueries, p.rows - row0);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);

  if (threadIdx.x < static_cast<uint32_t>(count)) {
    const Window w = window_of(p.sequences, token0 + threadIdx.x);
    windows[threadIdx.x] = w.count() > p.topk ? w : Window{0, 0};
  }
  __syncthreads();
  // Warps in groups of kPart share the heads of one query.
  constexpr int kPart = PrefillShape::kWarps / 3;
  for (int query = warp / kPart; query < count; query += PrefillShape::kWarps / kPart) {
    if (windows[query].count() == 0) continue;
    stage_heads<Keys, kTiles, kPart>(smem.query[query], smem.weight[query], p, token0 + query, warp % kPart, lane);
  }
  __syncthreads();

  const int32_t stride = p.splits * PrefillShape::kWarps;
  for (int first = 0; first < count;) {
    const Run run = next_run(p.sequences, windows, token0, first, count);
    first = run.last;
    if (run.window.count() == 0) continue;
    const int32_t* table = p.sequences.page_table + p.sequences.seq[token0 + run.first] * p.sequences.table_stride;
    const int32_t tiles_end = (run.window.end + PrefillShape::kTileKeys - 1) / PrefillShape::kTileKeys;
    for (int32_t t = run.window.begin / PrefillShape::kTileKeys + split * PrefillShape::kWarps + warp; t < tiles_end;
         t += stride) {
      KeyTile<Keys> tile;
      load_tile<Keys>(tile, p, table, run.window, t, lane);
      const int32_t tile_begin = t * PrefillShape::kTileKeys, tile_end = tile_begin + PrefillShape::kTileKeys;
      const int32_t position = tile_begin + lane / 4 + 8 * (lane % 4);
#pragma unroll 1
      for (int query = run.first; query < run.last; ++query) {
        const Window w = windows[query];
        if (w.end <= tile_begin || w.begin >= tile_end) continue;
        const float score = score_query<Keys, kTiles>(tile, smem.query[query], smem.weight[query], lane);
        if (in_whole_groups(w, position)) p.scores[(row0 + query) * p.pitch + position] = score;
      }
    }
  }
}

// What an instance file compiles: the kernels of one key format.
template <class Keys>
[[nodiscard]] ScoreKernel prefill_kernel(int tiles) {
  switch (tiles) {
    case 1: return score_prefill<Keys, 1>;
    case 2: return score_prefill<Keys, 2>;
    case 4: return score_prefill<Keys, 4>;
    default: return score_prefill<Keys, 8>;
  }
}

template <class Keys>
[[nodiscard]] Status launch_prefill(const char* name, const ScoreParams& params, int tiles, cudaStream_t stream) {
  const int64_t ctas = int64_t{ceil_div(params.rows, PrefillShape::queries(tiles))} * params.splits;
  const ScoreKernel kernel = prefill_kernel<Keys>(tiles);
  kernel<<<static_cast<uint32_t>(ctas), PrefillShape::kWarps * 32, PrefillShape::shared_bytes(tiles), stream>>>(params);
  return launch_status(name);
}

template <class Keys>
[[nodiscard]] Status init_prefill(const char* name) {
  for (const int tiles : kCompiledTiles) {
    WINNOW_TRY(allow_shared(prefill_kernel<Keys>(tiles), name, PrefillShape::shared_bytes(tiles)));
  }
  return {};
}

}  // namespace winnow::cuda::indexer
