// SPDX-License-Identifier: Apache-2.0
// Sparse MLA over paged rows, sm_80 and up: bf16 mma.m16n8k16 with cache rows on M and heads on N, rows gathered by
// 16-byte cp.async, q and the output in registers for the whole kernel.
//   grid   tokens * head blocks * splits in x, split fastest; from shapes alone, so a captured graph may change lists
//   cta    `teams` teams of 1, 2, 4 or 8 warps = 8, 16, 32 or 64 heads; a team takes every teams-th tile of the split
//   smem   mla_tiles.hpp: 75 to 100 KB on parts with 99 KB, two CTAs of at most 113 KB or one of 208 KB on larger ones
//   sync   named barriers inside a team, all threads of a team at each; nothing waits for another CTA
//   bound  row gather up to 32 heads, mma.sync and its operand reads from shared memory at 64; docs/kernels.md
// A token without a tile, and a team without one, run the same barriers with nothing between them.
#pragma once

#include "backends/cuda/mla_team.cuh"

namespace winnow::cuda {

// Which part of which token this CTA computes; tiles are counted over the whole list.
struct Work {
  int token;
  int head_block, split;
  int end;          // entries of the list that may count
  int first, last;  // tiles of this split
};

template <class S>
__device__ __forceinline__ Work work_of(const MlaParams& p, uint32_t index) {
  Work w;
  const uint32_t block = index / p.splits;
  w.split = index % p.splits;
  w.token = block / p.head_blocks;
  w.head_block = block % p.head_blocks;
  const int len = p.lens ? __ldg(p.lens + w.token * p.len_stride) : p.topk;
  w.end = uniform(min(max(len, 0), p.topk));
  const int tiles = (w.end + S::kTileRows - 1) / S::kTileRows;
  w.first = static_cast<int>(static_cast<int64_t>(tiles) * w.split / p.splits);
  w.last = static_cast<int>(static_cast<int64_t>(tiles) * (w.split + 1) / p.splits);
  return w;
}

__device__ __forceinline__ void wait_for_stage(int stages) {
  if (stages == 2)
    copies_wait<0>();
  else if (stages == 3)
    copies_wait<1>();
  else
    copies_wait<2>();
}

// Several teams of several warps pass the same number of barriers, also where a team has a tile less or one without a
// row that counts. The kernels do not need it. compute-sanitizer's racecheck does: it takes the number of barriers that
// a thread has passed for its time, and reports what a team with more of them wrote and one with fewer read, in spite
// of the barrier of the whole CTA between (bench/lab/racecheck_barriers.cu).
template <class S>
inline constexpr bool kEvenBarriers = S::kWarps > 1 && !S::kOneTeam;

template <class S>
__device__ __forceinline__ void even_out_barriers(const MlaParams& p, const Place<S>& at, const Work& w) {
  const int end = min(w.end, w.last * S::kTileRows) - w.first * S::kTileRows;
  const int left = (end + S::kTileRows - 1) / S::kTileRows % p.teams;  // teams that have a tile more than the others
  if (end <= 0 || left == 0 || at.team < left) return;
  team_barrier<S>(at.team);
  team_barrier<S>(at.team);
  team_barrier<S>(at.team);
}

// One tile after the other. Three barriers a tile; teams of one warp need none.
template <class S>
__device__ __forceinline__ void run_tiles(const MlaParams& p, const Place<S>& at, const Work& w, Softmax& state,
                                          Output<S>& out) {
  const int step = S::kOneTeam ? 1 : p.teams;
  const int end = min(w.end, w.last * S::kTileRows);  // of this split's part of the list
  int tile = w.first + at.team;
  if (tile * S::kTileRows >= end) return;
  int32_t slot = load_slot<S>(p, w.token, tile, end, at.lane);
  clear_rope<S>(p, at);
  for (int i = 0; i < p.stages - 1; ++i) {
    if ((tile + i * step) * S::kTileRows < end) gather<S>(p, at, i, slot);
    slot = load_slot<S>(p, w.token, tile + (i + 1) * step, end, at.lane);
    copies_commit();
  }
  Query<S> q;
  load_query<S>(p, at.again_with_warp(), q, w.token, w.head_block);
  int stage = 0;
  for (; tile * S::kTileRows < end; tile += step) {
    wait_for_stage(p.stages);
    team_barrier<S>(at.team);  // the tile is here for every warp; the stage before it is free
    if ((tile + (p.stages - 1) * step) * S::kTileRows < end) {
      gather<S>(p, at.again(), stage == 0 ? p.stages - 1 : stage - 1, slot);
      slot = load_slot<S>(p, w.token, tile + p.stages * step, end, at.lane);
    }
    copies_commit();
    const uint32_t mask = load_shared_word(at.valid(stage));
    if (mask != 0) {  // the same for every warp of the team
      float s[S::kTilesM][4], factor[2];
      score<S>(at.again(), q, stage, s);
      if constexpr (S::kWarps > 1) {
        owners_barrier<S>(at.team, at.warp);  // partial scores are posted
        collect<S>(at.again(), 0, s);
      }
      softmax<S>(at.again(), state, mask, p.scale_log2e, s, factor);
      if constexpr (S::kWarps > 1) {
        post_weights<S>(at.again(), stage, 0, s, factor);
        team_barrier<S>(at.team);  // probabilities and factors are posted
        rescale<S>(at.again(), 0, out);
        accumulate<S>(at.again(), stage, 0, out);
      } else {
        accumulate_alone<S>(at.again(), stage, s, factor, out);
      }
    } else if constexpr (kEvenBarriers<S>) {
      team_barrier<S>(at.team);
      team_barrier<S>(at.team);
    }
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  }
}

// The same with one barrier a tile: between two barriers a warp adds the values of tile i, then takes the softmax of
// tile i + 1, then the scores of tile i + 2, and warps drift apart so that one's softmax hides behind another's MMAs.
// Mailboxes, probabilities and factors are double; the ring holds tiles i ... i + 2 and the one in flight.
template <class S>
__device__ __forceinline__ void run_tiles_overlapped(const MlaParams& p, const Place<S>& at, const Work& w,
                                                     Softmax& state, Output<S>& out) {
  static_assert(S::kWarps == 8 && kMaxStages == 4);
  const int tiles = w.last - w.first;
  if (tiles <= 0) return;
  int32_t slot = load_slot<S>(p, w.token, w.first, w.end, at.lane);
  clear_rope<S>(p, at);
#pragma unroll 1
  for (int i = 0; i < 3; ++i) {
    if (i < tiles) {
      gather<S>(p, at, i, slot);
      slot = i + 1 < tiles ? load_slot<S>(p, w.token, w.first + i + 1, w.end, at.lane) : -1;
    }
    copies_commit();
  }
  Query<S> q;
  load_query<S>(p, at.again_with_warp(), q, w.token, w.head_block);
  copies_wait<1>();
  team_barrier<S>(at.team);  // tiles 0 and 1 are here
  float s[S::kTilesM][4] = {};
  if (load_shared_word(at.valid(0)) != 0) score<S>(at, q, 0, s);
  team_barrier<S>(at.team);  // partial scores of tile 0 are posted
  for (int i = 0; i < tiles; ++i) {
    const int stage = i & 3, odd = i & 1;
    const uint32_t mask = load_shared_word(at.valid(stage));
    if (mask != 0) {
      float factor[2];
      collect<S>(at.again(), odd, s);
      softmax<S>(at.again(), state, mask, p.scale_log2e, s, factor);
      post_weights<S>(at.again(), stage, odd, s, factor);
    }
    const int next = (i + 1) & 3;
    if (i + 1 < tiles && load_shared_word(at.valid(next)) != 0) {
      score<S>(at.again(), q, next, s, odd ^ 1);
    }
    copies_wait<0>();  // tile i + 2
    team_barrier<S>(
        at.team);  // probabilities of i, scores of i + 1, rows of i + 2 are posted; the stage of i - 1 is free
    if (i + 3 < tiles) {
      gather<S>(p, at.again(), (i + 3) & 3, slot);
      slot = i + 4 < tiles ? load_slot<S>(p, w.token, w.first + i + 4, w.end, at.lane) : -1;
    }
    copies_commit();
    if (mask != 0) {
      rescale<S>(at.again(), odd, out);
      accumulate<S>(at.again(), stage, odd, out);
    }
  }
}

// Weight of a share of the slots beside others whose common maximum is `top`: 0 for an empty share, without forming
// (-inf) - (-inf); a NaN sum stays one.
__device__ __forceinline__ float team_weight(float2 max_and_sum, float top) {
  if (max_and_sum.x == -INFINITY) return max_and_sum.y == 0.0f ? 0.0f : 1.0f;
  return exp2_fast(max_and_sum.x - top);
}

// Final factor of one head's output, and its log-sum-exp. sum == 0: no slot counted.
__device__ __forceinline__ float out_factor(const MlaParams& p, int head, float max, float sum) {
  if (sum == 0.0f) return 0.0f;
  float factor = 1.0f / sum;
  if (p.sink && head < p.q_heads) {
    // 1 + exp(sink - lse), with lse = ln 2 * (max + log2 sum)
    const float ratio = exp2f(__ldg(p.sink + head * p.sink_stride) * kLog2e - (max + log2f(sum)));
    factor /= 1.0f + ratio;
  }
  return factor;
}
__device__ __forceinline__ void store_lse(const MlaParams& p, int64_t token, int head, float max, float sum) {
  if (!p.lse || head >= p.q_heads) return;
  p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = sum == 0.0f ? -INFINITY : kLn2 * (max + log2f(sum));
}

// Pieces of the result, 16 columns of 8 heads each, whose shares have been added up: the lane's two heads from
// first_head + 2t on have this maximum and sum over all slots.
template <class Row, int kTiles>
__device__ __forceinline__ void store_merged(const MlaParams& p, int64_t token, int first_head, int column, int lane,
                                             float2 top, float2 sum, const float (&o)[kTiles][4]) {
  const int g = lane >> 2, t = lane & 3;
  const int pair = first_head + t * 2, head = first_head + g;
  if (column == 0 && g == 0) {
    store_lse(p, token, pair, top.x, sum.x);
    store_lse(p, token, pair + 1, top.y, sum.y);
  }
  const float2 factor = make_float2(Row::kOutFactor * out_factor(p, pair, top.x, sum.x),
                                    Row::kOutFactor * out_factor(p, pair + 1, top.y, sum.y));
  uint16_t* to = p.out + token * p.out_token_stride + head * p.out_head_stride;
  if constexpr (kTiles == 1) {
    Row::store_tile(to, column, p.d_v, t, o[0], factor, head < p.q_heads);
  } else {
#pragma unroll
    for (int m = 0; m < kTiles; m += 2)
      Row::store_out(to, column + m * 16, p.d_v, t, o[m], o[m + 1], factor, head < p.q_heads);
  }
}

// One thread per head: maximum and sum over the CTA's teams, and what each team's output is to be multiplied by, the
// final normalisation included when there are no splits.
template <class S>
__device__ __forceinline__ void finish_head(const MlaParams& p, const Work& w, uint32_t stats, uint32_t weights,
                                            int teams, int h) {
  float max = -INFINITY;
  for (int i = 0; i < teams; ++i) max = fmaxf(max, load_shared_float2(stats + (i * S::kHeads + h) * 8).x);
  float sum = 0;
  for (int i = 0; i < teams; ++i) {
    const float2 s = load_shared_float2(stats + (i * S::kHeads + h) * 8);
    sum += team_weight(s, max) * s.y;
  }
  const int head = w.head_block * S::kHeads + h;
  float factor = 1.0f;
  if (p.splits == 1) {
    factor = S::Row::kOutFactor * out_factor(p, head, max, sum);
    store_lse(p, w.token, head, max, sum);
  } else {
    reinterpret_cast<float2*>(p.partial_stats)[static_cast<int64_t>(blockIdx.x) * S::kHeads + h] =
        make_float2(max, sum);
  }
  for (int i = 0; i < teams; ++i) {
    const float2 s = load_shared_float2(stats + (i * S::kHeads + h) * 8);
    store_shared(weights + (i * S::kHeads + h) * 4, __float_as_uint(team_weight(s, max) * factor));
  }
}

// One piece of the result, 32 columns of 8 heads: final, or this split's share in fragment order.
template <class S>
__device__ __forceinline__ void store_piece(const MlaParams& p, const Place<S>& at, const Work& w, int warp, int m,
                                            int n, const float (&o0)[4], const float (&o1)[4]) {
  if (p.splits == 1) {
    const int head = w.head_block * S::kHeads + n * 8 + at.g();
    uint16_t* to = p.out + w.token * p.out_token_stride + head * p.out_head_stride;
    S::Row::store_out(to, warp * S::kColumns + m * 16, p.d_v, at.t(), o0, o1, make_float2(1.0f, 1.0f),
                      head < p.q_heads);
    return;
  }
  float4* to = reinterpret_cast<float4*>(p.partial) + static_cast<int64_t>(blockIdx.x) * (S::kHeads * kLatents / 4) +
               ((warp * S::kOutM + m) * S::kOutN + n) * 32 + at.lane;
  __stcg(to, make_float4(o0[0], o0[1], o0[2], o0[3]));
  __stcg(to + S::kOutN * 32, make_float4(o1[0], o1[1], o1[2], o1[3]));
}

// The teams' outputs, weighted already, added in team order. Every warp adds up its share of the pieces, so that the
// end of a CTA is short.
template <class S>
__device__ __forceinline__ void add_teams(const MlaParams& p, const Place<S>& at, const Work& w, uint32_t shared,
                                          int teams, const Output<S>& out) {
  constexpr int kWarpBox = S::kOutM * S::kOutN * 512, kTeamBox = S::kWarps * kWarpBox;
  const uint32_t lane_box = shared + at.warp * kWarpBox + at.lane * 16;
#pragma unroll
  for (int m = 0; m < S::kOutM; ++m) {
#pragma unroll
    for (int n = 0; n < S::kOutN; ++n)
      store_shared(lane_box + at.team * kTeamBox + (m * S::kOutN + n) * 512, out.o[m][n]);
  }
  __syncthreads();  // all outputs are posted
#pragma unroll 1
  for (int piece = at.team; piece < S::kOutM / 2 * S::kOutN; piece += teams) {
    const int m = piece / S::kOutN * 2, n = piece % S::kOutN;
    float o0[4] = {}, o1[4] = {};
    for (int i = 0; i < teams; ++i) {
      const uint32_t box = lane_box + i * kTeamBox + (m * S::kOutN + n) * 512;
      const float4 a = load_shared_float4(box), b = load_shared_float4(box + S::kOutN * 512);
      o0[0] += a.x, o0[1] += a.y, o0[2] += a.z, o0[3] += a.w;
      o1[0] += b.x, o1[1] += b.y, o1[2] += b.z, o1[3] += b.w;
    }
    store_piece<S>(p, at, w, at.warp, m, n, o0, o1);
  }
}

// Weighs and adds the teams of the CTA and writes the result: final, or this split's share.
template <class S>
__device__ __forceinline__ void finish(const MlaParams& p, const Place<S>& at, const Work& w, uint32_t shared,
                                       uint32_t stats, Softmax& state, Output<S>& out) {
  const int teams = S::kOneTeam ? 1 : p.teams;
  const uint32_t weights = stats + teams * S::kHeads * 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) state.sum[h] += __shfl_xor_sync(~0u, state.sum[h], step);
    if (at.g() == 0) {
      store_shared(stats + (at.team * S::kHeads + at.warp * 8 + at.t() * 2 + h) * 8,
                   make_float2(state.max[h], state.sum[h]));
    }
  }
  copies_wait<0>();
  __syncthreads();  // statistics are posted, all stages are free
  if (threadIdx.x < S::kHeads) finish_head<S>(p, w, stats, weights, teams, threadIdx.x);
  __syncthreads();  // factors are posted
#pragma unroll
  for (int n = 0; n < S::kOutN; ++n) {
    const float2 f = load_shared_float2(weights + (at.team * S::kHeads + n * 8 + at.t() * 2) * 4);
#pragma unroll
    for (int m = 0; m < S::kOutM; ++m) {
      out.o[m][n][0] *= f.x, out.o[m][n][1] *= f.y, out.o[m][n][2] *= f.x, out.o[m][n][3] *= f.y;
    }
  }
  if constexpr (!S::kOneTeam) {
    add_teams<S>(p, at, w, shared, teams, out);
  } else {
#pragma unroll
    for (int n = 0; n < S::kOutN; ++n) {
#pragma unroll
      for (int m = 0; m < S::kOutM; m += 2) store_piece<S>(p, at, w, at.warp, m, n, out.o[m][n], out.o[m + 1][n]);
    }
  }
}

template <class S>
__device__ __forceinline__ void sparse_mla(const MlaParams& p) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  let_next_kernel_start();
  const uint32_t shared = shared_address(shared_bytes);
  const Place<S> at(shared, p.team_bytes);
  Softmax state = {{-INFINITY, -INFINITY}, {0, 0}};
  Output<S> out;
#pragma unroll
  for (int m = 0; m < S::kOutM; ++m)
#pragma unroll
    for (int n = 0; n < S::kOutN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out.o[m][n][i] = 0;
  wait_for_previous_kernel();
  if constexpr (S::kOverlap)
    run_tiles_overlapped<S>(p, at, work_of<S>(p, blockIdx.x), state, out);
  else
    run_tiles<S>(p, at, work_of<S>(p, blockIdx.x), state, out);
  uint32_t index = blockIdx.x;
  asm volatile("" : "+r"(index));  // worked out again, rather than kept in registers over the loop
  if constexpr (kEvenBarriers<S>) even_out_barriers<S>(p, at.again(), work_of<S>(p, index));
  finish<S>(p, at.again(), work_of<S>(p, index), shared, shared + p.teams * p.team_bytes, state, out);
}

}  // namespace winnow::cuda
