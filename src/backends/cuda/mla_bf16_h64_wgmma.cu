// SPDX-License-Identifier: Apache-2.0
// Sparse MLA over bf16 rows, 64 heads per CTA, for SM90 alone: both products by wgmma.
//   grid   as mla_kernel.cuh
//   cta    two warpgroups that compute (216 registers a thread) and one that gathers (72)
//   smem   225 KB: q 72 KB, four tiles of 32 rows 144 KB, probabilities of two tiles 9 KB
//   bound  reading q and rows from shared memory for the scores (44 of 34 tensor cycles a row), then DRAM
// The warpgroups take turns: one computes the scores and the softmax of even tiles, the other of odd ones; each adds
// the values of every tile to its own 256 columns of the output. So one's softmax runs beside the other's products.
// Rows lie as nine blocks of 64 columns [32 rows][128 bytes], 16-byte chunks swizzled by row % 8: for the scores that
// is a K-major operand, for the values the same bytes are an MN-major one.
//
// Barriers, tile i: full[i % 4], 128 arrivals of the gathering lanes when their copies have landed. empty[i % 4], 8
// arrivals, one per computing warp when it has added the values. posted[i % 2], 128 arrivals of the warpgroup that
// wrote the probabilities. Nobody is lapped: a warpgroup posts tile i + 2 after it has read tile i + 1, whose writer
// had read tile i before. No thread leaves between the first barrier and the last.
#include "backends/cuda/mla_kernel.cuh"
#include "backends/cuda/mla_launch.hpp"
#include "backends/cuda/sm90_wgmma.cuh"

namespace winnow::cuda {
namespace {
using namespace sm90;

constexpr int kRows = 32, kRing = 4, kHeadsPerCta = 64;
constexpr int kBlockBytes = kRows * 128;  // 64 columns of a tile
constexpr int kQBlockBytes = kHeadsPerCta * 128;
constexpr int kQBytes = 9 * kQBlockBytes, kTileBytes = 9 * kBlockBytes;
constexpr int kPostBytes = 4096 + kHeadsPerCta * 8;  // probabilities by thread, then maximum and factor by head
constexpr int kPost = kQBytes + kRing * kTileBytes;
constexpr int kBarriers = kPost + 2 * kPostBytes;
constexpr int kUsed = kBarriers + 128;
static_assert(kUsed + 1024 <= kWgmmaSharedBytes);
constexpr int kComputeBarrier = 1;  // of the 256 computing threads

struct Addresses {
  uint32_t q, tiles, post, barriers;
  __device__ __forceinline__ uint32_t tile(int i) const { return tiles + (i & (kRing - 1)) * kTileBytes; }
  __device__ __forceinline__ uint32_t full(int i) const { return barriers + (i & (kRing - 1)) * 8; }
  __device__ __forceinline__ uint32_t empty(int i) const { return barriers + 32 + (i & (kRing - 1)) * 8; }
  __device__ __forceinline__ uint32_t posted(int i) const { return barriers + 64 + (i & 1) * 8; }
};

// The gathering warps: lane = row while slots are looked at; then a warp copies 8 rows, eight lanes a row.
__device__ __forceinline__ void gather_tiles(const MlaParams& p, const Addresses& at, const Work& w) {
  const int lane = threadIdx.x & 31, chunk = lane & 7, tiles = w.last - w.first;
  const int first_row = (threadIdx.x >> 5 & 3) * 8;
  const int blocks = p.has_rope ? 9 : 8;
  const int32_t* list = p.lists + w.token * p.list_stride;
  const auto load = [&](int tile) {
    const int i = (w.first + tile) * kRows + lane;
    return tile < tiles && i < w.end ? __ldg(list + i) : -1;
  };
  int32_t slot = load(0);
  for (int i = 0; i < tiles; ++i) {
    const bool counts = slot >= 0 && slot < p.slots;
    const uint32_t mask = __ballot_sync(~0u, counts);
    int64_t offset = 0;
    if (counts) {
      if (p.flat) {
        offset = slot * p.row_stride;
      } else {
        const uint32_t page = static_cast<uint32_t>(slot) / static_cast<uint32_t>(p.page_size);
        offset = page * p.page_stride + (static_cast<uint32_t>(slot) - page * p.page_size) * p.row_stride;
      }
    }
    slot = load(i + 1);
    if (i >= kRing) mbarrier_wait(at.empty(i), (i / kRing - 1) & 1);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 8; r += 4) {
      const int row = first_row + r + (lane >> 3);
      const uint8_t* from = p.rows + __shfl_sync(~0u, offset, row) + chunk * 16;
      const uint32_t to = at.tile(i) + row * 128 + (chunk ^ (row & 7)) * 16;
      const bool read = (mask >> row) & 1;
#pragma unroll
      for (int b = 0; b < 9; ++b) {
        if (b < 8 || blocks == 9) copy_16(to + b * kBlockBytes, from + b * 128, read);
      }
    }
    mbarrier_arrive_after_copies(at.full(i));
  }
  copies_wait_all();
}

// q of 64 heads into the swizzled layout; zeros for heads that do not exist. Without a rope part, zeros stand in its
// place here and in every tile, so that the products need no branch.
__device__ __forceinline__ void load_q(const MlaParams& p, const Addresses& at, const Work& w) {
  for (int i = threadIdx.x; i < kHeadsPerCta * 72; i += 256) {
    const int h = i / 72, c = i % 72, head = w.head_block * kHeadsPerCta + h;
    const bool valid = head < p.q_heads && (c < 64 || p.has_rope);
    const uint16_t* from = p.q + (valid ? w.token * p.q_token_stride + head * p.q_head_stride + c * 8 : 0);
    copy_16(at.q + c / 8 * kQBlockBytes + h * 128 + ((c & 7) ^ (h & 7)) * 16, from, valid);
  }
  if (!p.has_rope) {
    for (int i = threadIdx.x; i < kRing * kBlockBytes / 16; i += 256) {
      const float zeros[4] = {};
      store_shared(at.tile(i / (kBlockBytes / 16)) + 8 * kBlockBytes + i % (kBlockBytes / 16) * 16, zeros);
    }
  }
  copies_wait_all();
  fence_async();
  barrier(kComputeBarrier, 256);
}

// State of one thread: heads 16 * warp + g and + 8 of its warpgroup's 64.
struct Lane {
  float o[128];  // [32 groups of 8 columns][row g: 2t, 2t + 1; row g + 8: the same]
  float s[16];   // [4 groups of 8 cache rows], the same way
  float max[2], sum[2];
};

__device__ __forceinline__ void start_scores(const Addresses& at, int i, Lane& l) {
  fence_async();
  const uint32_t rows = at.tile(i);
  pin(l.s);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 36; ++k) {
    wgmma_64x32(l.s, descriptor(at.q + k / 4 * kQBlockBytes + k % 4 * 32, 16, 1024),
                descriptor(rows + k / 4 * kBlockBytes + k % 4 * 32, 16, 1024), k != 0);
  }
  wgmma_commit();
}

__device__ __forceinline__ void start_values(const Addresses& at, int i, int group, const uint32_t (&weights)[8],
                                             Lane& l) {
  const uint32_t columns = at.tile(i) + group * 4 * kBlockBytes;
  pin(l.o);
  wgmma_fence();
  wgmma_64x256(l.o, weights, descriptor(columns, kBlockBytes, 1024));
  wgmma_64x256(l.o, weights + 4, descriptor(columns + 2048, kBlockBytes, 1024));
  wgmma_commit();
}

__device__ __forceinline__ void shrink(Lane& l, const float (&factor)[2]) {
  if (!__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < 128; ++i) l.o[i] *= factor[i >> 1 & 1];
}

// Scores to bf16 weights; new maxima and factors.
__device__ __forceinline__ void softmax(Lane& l, uint32_t mask, float scale_log2e, uint32_t (&weights)[8],
                                        float (&factor)[2]) {
  const int t = threadIdx.x & 3;
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const bool counts = (mask >> (i / 4 * 8 + 2 * t + (i & 1))) & 1;
    l.s[i] = counts ? l.s[i] * scale_log2e : -INFINITY;
    top[i >> 1 & 1] = fmaxf(top[i >> 1 & 1], l.s[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
    top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
    const float before = l.max[h];
    const float now = top[h] > before + kRescaleAbove ? top[h] : before;
    const float origin = now == -INFINITY ? 0.0f : now;
    factor[h] = now == before ? 1.0f : exp2_fast(before - now);
    l.max[h] = now;
    float sum = 0;
#pragma unroll
    for (int i = 2 * h; i < 16; i += i & 1 ? 3 : 1) {
      l.s[i] = exp2_fast(l.s[i] - origin);
      sum += l.s[i];
    }
    l.sum[h] = l.sum[h] * factor[h] + sum;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) weights[i] = pack_bf16(l.s[2 * i], l.s[2 * i + 1]);
}

__device__ __forceinline__ void post(const Addresses& at, int i, const Lane& l, const uint32_t (&weights)[8],
                                     const float (&factor)[2]) {
  const uint32_t to = at.post + (i & 1) * kPostBytes, thread = threadIdx.x & 127;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float v[4] = {__uint_as_float(weights[4 * k]), __uint_as_float(weights[4 * k + 1]),
                        __uint_as_float(weights[4 * k + 2]), __uint_as_float(weights[4 * k + 3])};
    store_shared(to + k * 2048 + thread * 16, v);
  }
  if ((thread & 3) == 0) {
    const uint32_t head = thread / 32 * 16 + (thread & 31) / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) store_shared(to + 4096 + (head + 8 * h) * 8, make_float2(l.max[h], factor[h]));
  }
  mbarrier_arrive(at.posted(i));
}

// The other warpgroup's tile: its weights into registers, its maxima and factors into the state.
__device__ __forceinline__ void take(const Addresses& at, int i, Lane& l, uint32_t (&weights)[8]) {
  mbarrier_wait(at.posted(i), (i >> 1) & 1);
  mbarrier_wait(at.full(i), (i / kRing) & 1);  // over long ago; makes the rows visible to this thread too
  fence_async();
  const uint32_t from = at.post + (i & 1) * kPostBytes, thread = threadIdx.x & 127;
  const uint32_t head = thread / 32 * 16 + (thread & 31) / 4;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float4 v = load_shared_float4(from + k * 2048 + thread * 16);
    weights[4 * k] = __float_as_uint(v.x), weights[4 * k + 1] = __float_as_uint(v.y);
    weights[4 * k + 2] = __float_as_uint(v.z), weights[4 * k + 3] = __float_as_uint(v.w);
  }
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float2 v = load_shared_float2(from + 4096 + (head + 8 * h) * 8);
    l.max[h] = v.x, factor[h] = v.y;
    l.sum[h] *= factor[h];
  }
  shrink(l, factor);
}

__device__ __forceinline__ void release(const Addresses& at, int i) {
  if ((threadIdx.x & 31) == 0) mbarrier_arrive(at.empty(i));
}

// One turn of a warpgroup: values of the other's tile i - 1 while the softmax of its own tile i runs, then values of i
// and scores of i + 2. Past the last tile those scores are of an old tile and nobody looks at them: a branch around
// asynchronous products would make the compiler wait for each of them.
template <bool kAfterOther>
__device__ __forceinline__ void turn(const MlaParams& p, const Addresses& at, int i, int tiles, int group, int32_t slot,
                                     Lane& l, uint32_t (&theirs)[8], uint32_t (&mine)[8]) {
  const uint32_t mask = __ballot_sync(~0u, slot >= 0 && slot < p.slots);
  if constexpr (kAfterOther) {
    take(at, i - 1, l, theirs);
    start_values(at, i - 1, group, theirs, l);
  }
  float factor[2];
  softmax(l, mask, p.scale_log2e, mine, factor);
  post(at, i, l, mine, factor);
  if constexpr (kAfterOther) {
    wgmma_wait<0>();
    pin(l.o);
    release(at, i - 1);
  }
  shrink(l, factor);
  start_values(at, i, group, mine, l);
  if (i + 2 < tiles) mbarrier_wait(at.full(i + 2), ((i + 2) / kRing) & 1);
  start_scores(at, i + 2, l);
  wgmma_wait<1>();
  pin(l.o);
  release(at, i);
  wgmma_wait<0>();
  pin(l.s);
}

__device__ __forceinline__ void compute_tiles(const MlaParams& p, const Addresses& at, const Work& w, int group,
                                              Lane& l) {
  const int lane = threadIdx.x & 31, tiles = w.last - w.first;
  const int32_t* list = p.lists + w.token * p.list_stride;
  const auto load = [&](int tile) {
    const int i = (w.first + tile) * kRows + lane;
    return tile < tiles && i < w.end ? __ldg(list + i) : -1;
  };
  int32_t slot = load(group);
  if (group < tiles) {
    mbarrier_wait(at.full(group), 0);
    start_scores(at, group, l);
    wgmma_wait<0>();
    pin(l.s);
  }
  uint32_t theirs[8], mine[8];
  int i = group;
  if (group == 0 && tiles > 0) {
    const int32_t now = slot;
    slot = load(2);
    turn<false>(p, at, 0, tiles, group, now, l, theirs, mine);
    i = 2;
  }
  for (; i < tiles; i += 2) {
    const int32_t now = slot;
    slot = load(i + 2);
    turn<true>(p, at, i, tiles, group, now, l, theirs, mine);
  }
  if (i == tiles && i > 0) {  // the last tile was the other warpgroup's
    take(at, i - 1, l, theirs);
    start_values(at, i - 1, group, theirs, l);
    wgmma_wait<0>();
    pin(l.o);
  }
}

// Sums of both warpgroups, then the output: normalised, or this split's share as [64 heads][512] fp32.
__device__ __forceinline__ void finish(const MlaParams& p, const Addresses& at, const Work& w, int group, Lane& l) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int row = (threadIdx.x >> 5 & 3) * 16 + g;
  const uint32_t sums = at.post, factors = at.post + 1024;
  barrier(kComputeBarrier, 256);  // the last posts have been read
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l.sum[h] += __shfl_xor_sync(~0u, l.sum[h], 1);
    l.sum[h] += __shfl_xor_sync(~0u, l.sum[h], 2);
    if (t == 0) store_shared(sums + (group * 64 + row + 8 * h) * 8, make_float2(l.max[h], l.sum[h]));
  }
  barrier(kComputeBarrier, 256);  // sums are posted
  if (threadIdx.x < 64) {
    const int h = threadIdx.x, head = w.head_block * kHeadsPerCta + h;
    const float2 a = load_shared_float2(sums + h * 8), b = load_shared_float2(sums + (64 + h) * 8);
    const float sum = a.y + b.y;
    float factor = 1.0f;
    if (p.splits == 1) {
      factor = out_factor(p, head, a.x, sum);
      store_lse(p, w.token, head, a.x, sum);
    } else {
      reinterpret_cast<float2*>(p.partial_stats)[static_cast<int64_t>(blockIdx.x) * kHeadsPerCta + h] =
          make_float2(a.x, sum);
    }
    store_shared(factors + h * 4, __float_as_uint(factor));
  }
  barrier(kComputeBarrier, 256);  // factors are posted
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int local = row + 8 * h, head = w.head_block * kHeadsPerCta + local;
    if (p.splits == 1) {
      const float f = load_shared_float(factors + local * 4);
      uint16_t* to = p.out + w.token * p.out_token_stride + head * p.out_head_stride;
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        uint32_t r[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) r[c] = pack_bf16(l.o[(j + c) * 4 + 2 * h] * f, l.o[(j + c) * 4 + 2 * h + 1] * f);
        transpose_quad(r);
        const int column = group * 256 + j * 8 + t * 8;
        if (head < p.q_heads && column < p.d_v)
          *reinterpret_cast<uint4*>(to + column) = make_uint4(r[0], r[1], r[2], r[3]);
      }
    } else {
      float2* to = reinterpret_cast<float2*>(p.partial) +
                   (static_cast<int64_t>(blockIdx.x) * kHeadsPerCta + local) * (kLatents / 2) + group * 128 + t;
#pragma unroll
      for (int j = 0; j < 32; ++j) __stcg(to + j * 4, make_float2(l.o[j * 4 + 2 * h], l.o[j * 4 + 2 * h + 1]));
    }
  }
}

__device__ __forceinline__ void compute(const MlaParams& p, const Addresses& at, const Work& w, int group) {
  if (w.last > w.first) load_q(p, at, w);
  Lane l;
#pragma unroll
  for (int i = 0; i < 128; ++i) l.o[i] = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) l.s[i] = 0;
  l.max[0] = l.max[1] = -INFINITY, l.sum[0] = l.sum[1] = 0;
  compute_tiles(p, at, w, group, l);
  finish(p, at, w, group, l);
}

__global__ void __launch_bounds__(kWgmmaThreads, 1) mla_bf16_h64_wgmma(const __grid_constant__ MlaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared_bytes[];
  const uint32_t base = (shared_address(shared_bytes) + 1023) & ~1023u;
  const Addresses at{base, base + kQBytes, base + kPost, base + kBarriers};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) mbarrier_init(at.full(i), 128), mbarrier_init(at.empty(i), 8);
    for (int i = 0; i < 2; ++i) mbarrier_init(at.posted(i), 128);
    fence_async();
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Work w = work_of<Shape<Bf16Rows, 8, true>>(p, blockIdx.x);
  __syncthreads();
  const int group = uniform(threadIdx.x >> 7);
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    gather_tiles(p, at, w);  // nothing waits for these warps afterwards: every copy has landed
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    compute(p, at, w, group);
  }
#endif
}

// Merge of splits that lie as [64 heads][512]: a piece is a head x 256 columns, see mla_merge.cu.
constexpr int kRowsShare = kMaxSplits / 8;  // splits of one warp
__global__ void __launch_bounds__(kMergeThreads) mla_merge_rows(const __grid_constant__ MlaParams p) {
  __shared__ float4 boxes[kMergeThreads / 32][2][32];
  __shared__ float box_sums[kMergeThreads / 32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int ways = p.merge_ways, way = warp % ways;
  const uint32_t piece = blockIdx.x * (kMergeThreads / 32 / ways) + warp / ways;
  const uint32_t item = piece / 128;
  const int h = piece % 128 / 2, half = piece & 1, head = item % p.head_blocks * kHeadsPerCta + h;
  const int64_t token = item / p.head_blocks, first = static_cast<int64_t>(item) * p.splits * kHeadsPerCta + h;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float4* partial = reinterpret_cast<const float4*>(p.partial) + first * (kLatents / 4) + half * 64 + lane;
  float4 a[kRowsShare], b[kRowsShare];
  float2 s[kRowsShare];
  const float2* stats = reinterpret_cast<const float2*>(p.partial_stats) + first;
#pragma unroll
  for (int k = 0; k < kRowsShare; ++k) {
    const int i = way + k * ways;
    if (i >= p.splits) continue;
    s[k] = __ldcg(stats + i * kHeadsPerCta);
    a[k] = __ldcg(partial + static_cast<int64_t>(i) * (kHeadsPerCta * kLatents / 4));
    b[k] = __ldcg(partial + static_cast<int64_t>(i) * (kHeadsPerCta * kLatents / 4) + 32);
  }
  float top = -INFINITY;
  for (int i = lane; i < p.splits; i += 32) top = fmaxf(top, __ldcg(stats + i * kHeadsPerCta).x);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  float4 o0 = make_float4(0, 0, 0, 0), o1 = o0;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kRowsShare; ++k) {
    if (way + k * ways >= p.splits) continue;
    const float f = team_weight(s[k], top);
    sum += f * s[k].y;
    o0.x += f * a[k].x, o0.y += f * a[k].y, o0.z += f * a[k].z, o0.w += f * a[k].w;
    o1.x += f * b[k].x, o1.y += f * b[k].y, o1.z += f * b[k].z, o1.w += f * b[k].w;
  }
  if (ways > 1) {
    boxes[warp][0][lane] = o0, boxes[warp][1][lane] = o1;
    if (lane == 0) box_sums[warp] = sum;
    __syncthreads();
    if (way != 0) return;
    for (int i = 1; i < ways; ++i) {
      const float4 x = boxes[warp + i][0][lane], y = boxes[warp + i][1][lane];
      sum += box_sums[warp + i];
      o0.x += x.x, o0.y += x.y, o0.z += x.z, o0.w += x.w;
      o1.x += y.x, o1.y += y.y, o1.z += y.z, o1.w += y.w;
    }
  }
  if (head >= p.q_heads) return;
  if (lane == 0 && half == 0) store_lse(p, token, head, top, sum);
  const float f = out_factor(p, head, top, sum);
  uint16_t* to = p.out + token * p.out_token_stride + head * p.out_head_stride;
  const int column = half * 256 + lane * 4;
  if (column < p.d_v) {
    *reinterpret_cast<uint2*>(to + column) = make_uint2(pack_bf16(o0.x * f, o0.y * f), pack_bf16(o0.z * f, o0.w * f));
  }
  if (column + 128 < p.d_v) {
    *reinterpret_cast<uint2*>(to + column + 128) =
        make_uint2(pack_bf16(o1.x * f, o1.y * f), pack_bf16(o1.z * f, o1.w * f));
  }
}

}  // namespace

const void* mla_bf16_h64_wgmma_function() { return reinterpret_cast<const void*>(mla_bf16_h64_wgmma); }
const void* mla_merge_rows_function() { return reinterpret_cast<const void*>(mla_merge_rows); }

}  // namespace winnow::cuda
