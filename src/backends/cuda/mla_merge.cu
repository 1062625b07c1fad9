// SPDX-License-Identifier: Apache-2.0
// Merge of the splits of sparse MLA: the second kernel of a launch with more than one split.
//   grid   per token and eight heads 16 pieces of 32 columns, 32 of 16 for spread tiles; a piece takes 1, 4 or 8 warps,
//          each with every 1st, 4th or 8th split, so that all loads of a warp are in flight at once
//   work   out = sum_i 2^(max_i - max) o_i / sum_i 2^(max_i - max) sum_i, in an order that shapes alone fix
//   bound  reading 2 KB per head and split from L2, where the first kernel has just left it
// A split without a counted slot has max = -inf and sum = 0 and takes no part.
#include "backends/cuda/mla_kernel.cuh"
#include "backends/cuda/mla_launch.hpp"

namespace winnow::cuda {
namespace {

// Statistics of a share, heads 2t and 2t + 1: maximum, sum, maximum, sum.
__device__ __forceinline__ void raise(float2& top, float4 stats) {
  top.x = fmaxf(top.x, stats.x), top.y = fmaxf(top.y, stats.z);
}
template <int kTiles>
__device__ __forceinline__ void add_share(float (&o)[kTiles][4], float2& sum, const float4 (&share)[kTiles],
                                          float4 stats, float2 top) {
  const float x = team_weight(make_float2(stats.x, stats.y), top.x),
              y = team_weight(make_float2(stats.z, stats.w), top.y);
  sum.x += x * stats.y, sum.y += y * stats.w;
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
    o[c][0] += x * share[c].x, o[c][1] += y * share[c].y, o[c][2] += x * share[c].z, o[c][3] += y * share[c].w;
  }
}

// kTiles: 16 columns each of a piece; kShare: splits of one warp, at most.
template <class Row, int kHeads, int kTiles, int kShare>
__global__ void __launch_bounds__(kMergeThreads) mla_merge(const __grid_constant__ MlaParams p) {
  constexpr int kBlocks = kHeads / 8, kPieces = kBlocks * kLatents / 16 / kTiles;
  constexpr int64_t kSplitFloat4s = kHeads * kLatents / 4;
  __shared__ float4 boxes[kMergeThreads / 32][kTiles][32];
  __shared__ float4 box_stats[kMergeThreads / 32][4];
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x >> 5;
  const int ways = p.merge_ways, way = warp & (ways - 1), ways_log2 = __ffs(ways) - 1;
  const uint32_t piece = blockIdx.x * (kMergeThreads / 32 >> ways_log2) + (warp >> ways_log2);
  const uint32_t item = piece / kPieces;  // token and head block
  const int unit = piece % kPieces;
  const int n = unit % kBlocks, m = unit / kBlocks * kTiles;  // m counts 16 columns over all warps of the team
  const int64_t token = item / p.head_blocks;
  const int first_head = item % p.head_blocks * kHeads + n * 8;

  wait_for_previous_kernel();
  // Everything is asked for at once.
  const float4* stats = reinterpret_cast<const float4*>(p.partial_stats) +
                        (static_cast<int64_t>(item) * p.splits * kHeads + n * 8 + t * 2) / 2;
  const float4* partial = reinterpret_cast<const float4*>(p.partial) +
                          static_cast<int64_t>(item) * p.splits * kSplitFloat4s + (m * kBlocks + n) * 32 + lane;
  float4 share[kShare][kTiles], s[kShare];
#pragma unroll
  for (int k = 0; k < kShare; ++k) {
    const int i = way + k * ways;
    if (i >= p.splits) continue;
    s[k] = __ldcg(stats + i * (kHeads / 2));
#pragma unroll
    for (int c = 0; c < kTiles; ++c) share[k][c] = __ldcg(partial + i * kSplitFloat4s + c * kBlocks * 32);
  }
  float2 top = make_float2(-INFINITY, -INFINITY), sum = make_float2(0, 0);
  float o[kTiles][4] = {};
#pragma unroll
  for (int k = 0; k < kShare; ++k) {
    if (way + k * ways < p.splits) raise(top, s[k]);
  }
  let_next_kernel_start();  // not before: CTAs that wait would crowd those that work onto fewer SMs
#pragma unroll
  for (int k = 0; k < kShare; ++k) {
    if (way + k * ways < p.splits) add_share(o, sum, share[k], s[k], top);
  }
  if (ways > 1) {  // the same once more, over the warps
#pragma unroll
    for (int c = 0; c < kTiles; ++c) boxes[warp][c][lane] = make_float4(o[c][0], o[c][1], o[c][2], o[c][3]);
    if (g == 0) box_stats[warp][t] = make_float4(top.x, sum.x, top.y, sum.y);
    __syncthreads();
    if (way != 0) return;
    float4 other_stats[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= ways) continue;
      other_stats[i] = box_stats[warp + i][t];
      raise(top, other_stats[i]);
    }
    sum = make_float2(0, 0);
#pragma unroll
    for (int c = 0; c < kTiles; ++c) o[c][0] = o[c][1] = o[c][2] = o[c][3] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= ways) continue;
      float4 other[kTiles];
#pragma unroll
      for (int c = 0; c < kTiles; ++c) other[c] = boxes[warp + i][c][lane];
      add_share(o, sum, other, other_stats[i], top);
    }
  }
  store_merged<Row>(p, token, first_head, m * 16, lane, top, sum, o);
}

template <class Row>
const void* merge_of(const MlaTile& tile) {
  if (tile.spread) return reinterpret_cast<const void*>(mla_merge<Row, 8, kSpreadPiece, kMostSplits / 8>);
  switch (tile.team_warps) {
    case 1: return reinterpret_cast<const void*>(mla_merge<Row, 8, kMergePiece, kMaxSplits / 8>);
    case 2: return reinterpret_cast<const void*>(mla_merge<Row, 16, kMergePiece, kMaxSplits / 8>);
    case 4: return reinterpret_cast<const void*>(mla_merge<Row, 32, kMergePiece, kMaxSplits / 8>);
    default: return reinterpret_cast<const void*>(mla_merge<Row, 64, kMergePiece, kMaxSplits / 8>);
  }
}

}  // namespace

const void* mla_merge_function(const MlaTile& tile) {
  return tile.rows == RowFormat::bf16 ? merge_of<Bf16Rows>(tile) : merge_of<Fp8Rows>(tile);
}

}  // namespace winnow::cuda
