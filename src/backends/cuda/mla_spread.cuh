// SPDX-License-Identifier: Apache-2.0
// Sparse MLA of a few query tokens, sm_80 and up: latency is all, so the list is cut into single tiles and every CTA
// has one. The kernel of 8 heads gives a warp all their 512 dimensions; here four warps share them.
//   grid   tokens * blocks of 8 heads * splits in x, split fastest; from shapes alone
//   cta    one team of 4 warps, all with the same 8 heads: a warp takes 128 dimensions of the scores and 128 columns of
//          the values of 32 rows; every warp takes the softmax of all of them, so that nothing has to be sent on
//   smem   mla_tiles.hpp: 25 KB (v32_fp8), 41 KB (bf16), a ring of one: every CTA has one tile at most. 45 and 77 KB
//          with a ring of two for lists of more than 64 tiles
//   sync   two barriers a tile, all threads
//   bound  latency: launch, list, rows, the instructions of one tile, the merge
// A list is cut by its width and not by its length, so that the length and the slots are asked for together.
#pragma once

#include "backends/cuda/mla_kernel.cuh"

namespace winnow::cuda {

template <class RowT>
struct SpreadShape {
  using Row = RowT;
  static constexpr int kWarps = kSpreadWarps, kHeads = 8;
  static constexpr int kTileRows = tile_rows_of(kWarps), kTilesM = kTileRows / 16;
  static constexpr int kSlices = kWarps, kTilesN = 1;
  static constexpr int kNopeSteps = 32 / kSlices, kRopeSteps = 4 / kSlices;
  static constexpr int kColumns = kLatents / kWarps, kOutM = kColumns / 16, kOutN = 1;
  static constexpr int kWarpCopies = 1;  // a warp's columns are one scale group
  static constexpr int kRowsPerGroup = kTileRows / (4 * kWarps);
  static constexpr bool kOverlap = false, kOneTeam = true, kRopeShared = false;
  static constexpr bool kPostsOwn = true;
  static constexpr int kFirstPosted = 0, kSideBySide = 1, kScoreUnroll = kTilesM, kValueRing = 4;
  static constexpr TeamLayout kLayout = spread_layout(Row::kFormat);
  template <class At>
  static __device__ __forceinline__ uint32_t posted_at(const At& at, int /*n*/, int m) {
    return at.warp * kLayout.mail_warp + m * 512;
  }
};

// Adds the four slices of the scores, in order: every warp gets the same sums.
template <class S>
__device__ __forceinline__ void collect_slices(const Place<S>& at, float (&s)[S::kTilesM][4]) {
#pragma unroll
  for (int m = 0; m < S::kTilesM; ++m) s[m][0] = s[m][1] = s[m][2] = s[m][3] = 0;
#pragma unroll
  for (int slice = 0; slice < S::kSlices; ++slice) {
#pragma unroll
    for (int m = 0; m < S::kTilesM; ++m) {
      const float4 v = load_shared_float4(at.base + slice * S::kLayout.mail_warp + m * 512 + at.lane * 16);
      s[m][0] += v.x, s[m][1] += v.y, s[m][2] += v.z, s[m][3] += v.w;
    }
  }
}

template <class S>
__device__ __forceinline__ void run_spread(const MlaParams& p, const Place<S>& at, int token, int head_block, int split,
                                           Softmax& state, Output<S>& out) {
  const int tiles = (p.topk + S::kTileRows - 1) / S::kTileRows;
  const int first = static_cast<int>(static_cast<int64_t>(tiles) * split / p.splits);
  const int last = static_cast<int>(static_cast<int64_t>(tiles) * (split + 1) / p.splits);
  const int32_t len = p.lens ? __ldg(p.lens + token * p.len_stride) : p.topk;
  int32_t slot = load_slot<S>(p, token, first, p.topk, at.lane);
  clear_rope<S>(p, at);
  const auto ask = [&](int tile, int stage) {  // for a tile's rows; and for the slots of the next
    if (tile < last) {
      gather<S>(p, at, stage, tile * S::kTileRows + at.lane < len ? slot : -1);
      if (tile + 1 < last) slot = load_slot<S>(p, token, tile + 1, p.topk, at.lane);
    }
    copies_commit();
  };
  ask(first, 0);
  Query<S> q;
  load_query<S>(p, at, q, token, head_block);  // under way with the rows
  int stage = 0;
#pragma unroll 1
  for (int tile = first; tile < last; ++tile) {
    copies_wait<0>();
    __syncthreads();  // the rows are here, those of the tile before and its scores have been read
    if (tile == first) let_next_kernel_start();  // not before: CTAs that wait would crowd those that ask for rows
    ask(tile + 1, stage ^ 1);
    const uint32_t mask = load_shared_word(at.valid(stage));
    if (mask != 0) {  // the same for all
      float s[S::kTilesM][4], factor[2];
      score<S>(at, q, stage, s);
      __syncthreads();  // partial scores are posted
      collect_slices<S>(at, s);
      softmax<S>(at, state, mask, p.scale_log2e, s, factor);
      accumulate_alone<S>(at, stage, s, factor, out);
    }
    stage ^= 1;
  }
}

// This CTA's share, or the result where there is no other.
template <class S>
__device__ __forceinline__ void finish_spread(const MlaParams& p, const Place<S>& at, int token, int head_block,
                                              Softmax& state, const Output<S>& out) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) state.sum[h] += __shfl_xor_sync(~0u, state.sum[h], step);
  }
  if (p.splits == 1) {
    const float2 top = make_float2(state.max[0], state.max[1]), sum = make_float2(state.sum[0], state.sum[1]);
    float o[S::kOutM][4];
#pragma unroll
    for (int m = 0; m < S::kOutM; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][i] = out.o[m][0][i];
    store_merged<typename S::Row>(p, token, head_block * S::kHeads, at.warp * S::kColumns, at.lane, top, sum, o);
    return;
  }
  if (at.warp == 0 && at.g() == 0) {
    reinterpret_cast<float4*>(p.partial_stats)[static_cast<int64_t>(blockIdx.x) * (S::kHeads / 2) + at.t()] =
        make_float4(state.max[0], state.sum[0], state.max[1], state.sum[1]);
  }
  float4* to = reinterpret_cast<float4*>(p.partial) + static_cast<int64_t>(blockIdx.x) * (S::kHeads * kLatents / 4) +
               at.warp * S::kOutM * 32 + at.lane;
#pragma unroll
  for (int m = 0; m < S::kOutM; ++m) {
    const float(&o)[4] = out.o[m][0];
    __stcg(to + m * 32, make_float4(o[0], o[1], o[2], o[3]));
  }
}

template <class Row>
__device__ __forceinline__ void sparse_mla_spread(const MlaParams& p) {
  using S = SpreadShape<Row>;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  const Place<S> at(shared_address(shared_bytes), 0);
  const int split = blockIdx.x % p.splits, block = blockIdx.x / p.splits;
  const int token = block / p.head_blocks, head_block = block % p.head_blocks;
  Softmax state = {{-INFINITY, -INFINITY}, {0, 0}};
  Output<S> out = {};
  wait_for_previous_kernel();
  run_spread<S>(p, at, token, head_block, split, state, out);
  finish_spread<S>(p, at, token, head_block, state, out);
}

}  // namespace winnow::cuda

#define WINNOW_MLA_SPREAD_INSTANCE(name, Row)                                                         \
  namespace winnow::cuda {                                                                            \
  __global__ void __launch_bounds__(32 * kSpreadWarps, 4) name(const __grid_constant__ MlaParams p) { \
    sparse_mla_spread<Row>(p);                                                                        \
  }                                                                                                   \
  const void* name##_function() { return reinterpret_cast<const void*>(name); }                       \
  }
