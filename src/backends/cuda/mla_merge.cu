// SPDX-License-Identifier: Apache-2.0
// Merge of the splits of sparse MLA: the second kernel of a launch with more than one split.
//   grid   per token and head block 16 * team warps pieces of 8 heads x 32 columns; a piece takes 1, 4 or 8 warps, each
//          with every 1st, 4th or 8th split, so that all loads of a warp are in flight at once
//   work   out = sum_i 2^(max_i - max) o_i / sum_i 2^(max_i - max) sum_i, in an order that shapes alone fix
//   bound  reading 2 KB per head and split from L2, where the first kernel has just left it
// A split without a counted slot has max = -inf and sum = 0 and takes no part.
#include "backends/cuda/mla_kernel.cuh"
#include "backends/cuda/mla_launch.hpp"

namespace winnow::cuda {
namespace {

template <class Row, int kTeamWarps>
__global__ void __launch_bounds__(kMergeThreads) mla_merge(const __grid_constant__ MlaParams p) {
  using S = Shape<Row, kTeamWarps, false>;
  __shared__ float4 boxes[kMergeThreads / 32][2][32];
  __shared__ float2 box_sums[kMergeThreads / 32][4];
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x >> 5;
  const int ways = p.merge_ways, way = warp % ways;
  const uint32_t piece = blockIdx.x * (kMergeThreads / 32 / ways) + warp / ways;
  const uint32_t item = piece / (16 * S::kWarps);  // token and head block
  const int unit = piece % (16 * S::kWarps);
  const int n = unit % S::kOutN, m = unit / S::kOutN * 2;  // m counts 16 columns over all warps of the team
  const int64_t token = item / p.head_blocks;
  const int first_head = item % p.head_blocks * S::kHeads + n * 8;

  let_next_kernel_start();
  wait_for_previous_kernel();
  // Everything is asked for at once: this warp's splits, and the maxima of heads 2t, 2t + 1 over all splits, of which
  // lane g looks at every eighth.
  const float4* stats = reinterpret_cast<const float4*>(p.partial_stats) +
                        (static_cast<int64_t>(item) * p.splits * S::kHeads + n * 8 + t * 2) / 2;
  const float4* partial = reinterpret_cast<const float4*>(p.partial) +
                          static_cast<int64_t>(item) * p.splits * (S::kHeads * kLatents / 4) + (m * S::kOutN + n) * 32 +
                          lane;
  float4 a[kMergeShare], b[kMergeShare], s[kMergeShare];
#pragma unroll
  for (int k = 0; k < kMergeShare; ++k) {
    const int i = way + k * ways;
    if (i >= p.splits) continue;
    s[k] = __ldcg(stats + i * (S::kHeads / 2));
    a[k] = __ldcg(partial + static_cast<int64_t>(i) * (S::kHeads * kLatents / 4));
    b[k] = __ldcg(partial + static_cast<int64_t>(i) * (S::kHeads * kLatents / 4) + S::kOutN * 32);
  }
  float2 top = make_float2(-INFINITY, -INFINITY);
#pragma unroll 8
  for (int i = g; i < p.splits; i += 8) {
    const float4 v = __ldcg(stats + i * (S::kHeads / 2));
    top.x = fmaxf(top.x, v.x), top.y = fmaxf(top.y, v.z);
  }
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    top.x = fmaxf(top.x, __shfl_xor_sync(~0u, top.x, step)), top.y = fmaxf(top.y, __shfl_xor_sync(~0u, top.y, step));
  }
  float o0[4] = {}, o1[4] = {};
  float2 sum = make_float2(0, 0);
#pragma unroll
  for (int k = 0; k < kMergeShare; ++k) {
    if (way + k * ways >= p.splits) continue;
    const float wx = team_weight(make_float2(s[k].x, s[k].y), top.x),
                wy = team_weight(make_float2(s[k].z, s[k].w), top.y);
    sum.x += wx * s[k].y, sum.y += wy * s[k].w;
    o0[0] += wx * a[k].x, o0[1] += wy * a[k].y, o0[2] += wx * a[k].z, o0[3] += wy * a[k].w;
    o1[0] += wx * b[k].x, o1[1] += wy * b[k].y, o1[2] += wx * b[k].z, o1[3] += wy * b[k].w;
  }
  if (ways > 1) {
    boxes[warp][0][lane] = make_float4(o0[0], o0[1], o0[2], o0[3]);
    boxes[warp][1][lane] = make_float4(o1[0], o1[1], o1[2], o1[3]);
    if (g == 0) box_sums[warp][t] = sum;
    __syncthreads();
    if (way != 0) return;
    for (int i = 1; i < ways; ++i) {
      const float4 x = boxes[warp + i][0][lane], y = boxes[warp + i][1][lane];
      const float2 z = box_sums[warp + i][t];
      sum.x += z.x, sum.y += z.y;
      o0[0] += x.x, o0[1] += x.y, o0[2] += x.z, o0[3] += x.w;
      o1[0] += y.x, o1[1] += y.y, o1[2] += y.z, o1[3] += y.w;
    }
  }
  const int pair = first_head + t * 2;
  if (m == 0 && g == 0) {
    store_lse(p, token, pair, top.x, sum.x);
    store_lse(p, token, pair + 1, top.y, sum.y);
  }
  const float2 factor = make_float2(Row::kOutFactor * out_factor(p, pair, top.x, sum.x),
                                    Row::kOutFactor * out_factor(p, pair + 1, top.y, sum.y));
  const int head = first_head + g;
  uint16_t* to = p.out + token * p.out_token_stride + head * p.out_head_stride;
  Row::store_out(to, m * 16, p.d_v, t, o0, o1, factor, head < p.q_heads);
}

template <class Row>
const void* merge_of(int team_warps) {
  switch (team_warps) {
    case 1: return reinterpret_cast<const void*>(mla_merge<Row, 1>);
    case 2: return reinterpret_cast<const void*>(mla_merge<Row, 2>);
    case 4: return reinterpret_cast<const void*>(mla_merge<Row, 4>);
    default: return reinterpret_cast<const void*>(mla_merge<Row, 8>);
  }
}

}  // namespace

const void* mla_merge_function(RowFormat rows, int team_warps) {
  return rows == RowFormat::bf16 ? merge_of<Bf16Rows>(team_warps) : merge_of<Fp8Rows>(team_warps);
}

}  // namespace winnow::cuda
