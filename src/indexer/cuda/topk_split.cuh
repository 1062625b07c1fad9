// SPDX-License-Identifier: Apache-2.0
// Exact top-k of long rows in two launches that fill the machine even for one row. Same order and output as topk.cuh.
//   topk_filter   rows * segments CTAs. A segment is every segments-th block of 128 scores, so that each sees the whole
//                 row: recent tokens that score high are shared out evenly. It keeps what stands at or above its own
//                 `rank`-th value, rank well above its fair share of topk, and says where that bound lay
//   topk_finish   one CTA per row: puts the survivors back in order of position, selects among them, and checks that no
//                 bound lies above the border. If one does, a segment may have withheld a value that belongs to the
//                 result: then this CTA selects from the whole row, segment by segment of 32768, exact and slower
// 512 threads each. smem 45 KB (topk.cuh).
// bound  latency: at 4 x 131072 two launches and a chain of short steps
#pragma once

#include "indexer/cuda/topk.cuh"

namespace winnow::cuda::indexer {

// One row of survivors. Segment s owns [s * capacity, + capacity) of each list.
struct Survivors {
  float* values;
  int32_t* positions;
  uint32_t* bounds;  // key from which up the segment kept everything
  uint32_t* totals;  // kept, or kTooMany
  uint16_t* starts;  // [blocks] first list entry of the segment's block
  uint16_t* block;   // of an entry

  __device__ Survivors(const SplitParams& p, int32_t row, int32_t segment) {
    const int32_t entries = p.segment_count() * p.list_capacity();
    uint8_t* base = p.survivors + row * p.survivors_stride;
    values = reinterpret_cast<float*>(base) + segment * p.list_capacity();
    positions = reinterpret_cast<int32_t*>(base) + entries + segment * p.list_capacity();
    bounds = reinterpret_cast<uint32_t*>(base) + 2 * entries + segment;
    totals = reinterpret_cast<uint32_t*>(base) + 2 * entries + p.segment_count() + segment;
    auto* shorts = reinterpret_cast<uint16_t*>(reinterpret_cast<uint32_t*>(base) + 2 * (entries + p.segment_count()));
    starts = shorts + segment * p.blocks;
    block = shorts + p.segment_count() * p.blocks + segment * p.list_capacity();
  }
};

// Keys of the segment's blocks: piece c of warp w is block c * 16 + w.
template <int kKeys>
__device__ inline void load_blocks(RegisterKeys<kKeys>& keys, const SplitParams& p, int32_t row, int32_t segment,
                                   Window w) {
  const float* source = p.row[0].scores + row * p.row[0].pitch;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  float4 x[kKeys / 4];
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = ((c * kTopkWarps + warp) * p.segment_count() + segment) * kSplitBlock + lane * 4;
    x[c] = {};
    if (first < w.end && first + 4 > w.begin) x[c] = *reinterpret_cast<const float4*>(source + first);
  }
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = ((c * kTopkWarps + warp) * p.segment_count() + segment) * kSplitBlock + lane * 4;
    const float four[4] = {x[c].x, x[c].y, x[c].z, x[c].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      keys.key[4 * c + j] = first + j >= w.begin && first + j < w.end ? key_of(four[j]) : 0;
    }
  }
}

template <int kKeys>
__global__ void __launch_bounds__(kTopkThreads, 2) topk_filter(const __grid_constant__ SplitParams p) {
  __shared__ TopkSmem smem;
  constexpr int kPieces = kKeys / 4;
  const int32_t row = static_cast<int32_t>(blockIdx.x / p.segments.divisor);
  const int32_t segment = static_cast<int32_t>(blockIdx.x % p.segments.divisor);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Window w = window_of(p.row[0].sequences, p.row[0].first_token + row);
  if (w.count() <= p.row[0].topk) return;  // topk_finish writes such rows without a list
  smem.bins[threadIdx.x] = {};
  RegisterKeys<kKeys> keys;
  load_blocks(keys, p, row, segment, w);
  constexpr uint32_t kSlack = 16;  // the border bin is kept whole when it holds no more
  const uint32_t bound = find_border(smem, keys, p.rank, kSlack).low;

  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  Mask<kKeys> mask = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) mask |= Mask<kKeys>{keys.key[i] >= bound} << i;
  const Prefix<kPieces> prefix = prefix_of<kPieces>(smem, mask, warp, lane);
  const Survivors out(p, row, segment);
  const bool fits = prefix.total <= p.capacity.divisor;
  if (threadIdx.x == 0) {
    *out.bounds = bound;
    *out.totals = fits ? prefix.total : kTooMany;
  }
  // Unused entries are written too: topk_finish reads lists before it knows their lengths.
  for (uint32_t i = (fits ? prefix.total : 0) + threadIdx.x; i < p.capacity.divisor; i += kTopkThreads) {
    out.values[i] = 0;
    out.block[i] = 0;
  }
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t bits = static_cast<uint32_t>(mask >> (4 * c)) & 0xF;
    const int32_t block = c * kTopkWarps + warp;
    uint32_t at = prefix.before(c, warp);
    if (lane == 0) out.starts[block] = static_cast<uint16_t>(at);
    if (!fits) continue;
    at += count_below(__popc(bits), (1u << lane) - 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((bits >> j & 1) == 0) continue;
      const uint32_t key = keys.key[4 * c + j];
      out.values[at] = key < kKeyOfMinusInf ? __uint_as_float(kNan) : value_of(key);
      out.positions[at] = (block * p.segment_count() + segment) * kSplitBlock + lane * 4 + j;
      out.block[at++] = static_cast<uint16_t>(block);
    }
  }
}

constexpr int kMaxSplitSegments = 64;
constexpr int kMaxSplitBlocks = 4096;  // of a row

struct FinishSmem {
  TopkSmem topk;
  uint32_t totals[kMaxSplitSegments];
  uint32_t highest_bound;
};
static_assert(sizeof(FinishSmem) <= 48 * 1024);

constexpr int kStartsPerThread = kMaxSplitBlocks / kTopkThreads;
constexpr int kEntriesPerThread = kCandidates / kTopkThreads;

// Everything a thread needs of the lists, loaded at once: a chain of loads would cost a microsecond each.
struct FinishLoads {
  uint32_t total, bound;             // of segment threadIdx.x
  uint16_t start[kStartsPerThread];  // of blocks in position order from threadIdx.x * per on
  float value[kEntriesPerThread];    // entries threadIdx.x, + 512, ...
  uint16_t block[kEntriesPerThread];

  __device__ FinishLoads(const SplitParams& p, const Survivors& in) {
    const int32_t blocks = p.segment_count() * p.blocks, entries = p.segment_count() * p.list_capacity();
    const int32_t per = (blocks + kTopkThreads - 1) / kTopkThreads;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    total = bound = 0;
    if (thread < p.segment_count()) {
      total = in.totals[thread];
      bound = in.bounds[thread];
    }
#pragma unroll
    for (int i = 0; i < kStartsPerThread; ++i) {
      const int32_t q = thread * per + i;
      start[i] = i < per && q < blocks ? in.starts[p.segments.remainder(q) * p.blocks + p.segments.divide(q)] : 0;
    }
#pragma unroll
    for (int i = 0; i < kEntriesPerThread; ++i) {
      const int32_t e = i * kTopkThreads + thread;
      value[i] = e < entries ? in.values[e] : 0;
      block[i] = e < entries ? in.block[e] : 0;
    }
  }
};

// What the segments say of themselves. False: a list is missing. Ends after a barrier.
__device__ inline bool share_heads(FinishSmem& smem, const FinishLoads& loads, int32_t segments) {
  if (threadIdx.x == 0) smem.highest_bound = 0;
  __syncthreads();
  const bool mine = static_cast<int32_t>(threadIdx.x) < segments;
  if (mine) {
    smem.totals[threadIdx.x] = loads.total;
    atomicMax(&smem.highest_bound, loads.bound);
  }
  return __syncthreads_or(mine && loads.total == kTooMany) == 0;
}

// Where each block's survivors go: chosen[q] of block q, in position order, plus the entry's place in its segment's
// list. Returns how many there are. Ends after a barrier.
__device__ inline uint32_t place_blocks(FinishSmem& smem, const FinishLoads& loads, const SplitParams& p) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int32_t blocks = p.segment_count() * p.blocks;
  const int32_t per = (blocks + kTopkThreads - 1) / kTopkThreads, first = static_cast<int32_t>(threadIdx.x) * per;
  uint16_t* starts = smem.topk.chosen;
#pragma unroll
  for (int i = 0; i < kStartsPerThread; ++i) {
    if (i < per && first + i < blocks) starts[first + i] = loads.start[i];
  }
  __syncthreads();
  uint32_t count[kStartsPerThread], sum = 0;  // a segment's next block is `segments` further on
#pragma unroll
  for (int i = 0; i < kStartsPerThread; ++i) {
    const int32_t q = first + i;
    count[i] = 0;
    if (i < per && q < blocks) {
      const uint32_t end =
          q + p.segment_count() < blocks ? starts[q + p.segment_count()] : smem.totals[p.segments.remainder(q)];
      count[i] = end - loads.start[i];
    }
    sum += count[i];
  }
  uint32_t inclusive = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  if (lane == 31) smem.topk.warp_sum[warp] = inclusive;
  __syncthreads();
  const uint32_t others = lane < kTopkWarps ? smem.topk.warp_sum[lane] : 0;
  uint32_t at = __reduce_add_sync(~0u, lane < warp ? others : 0) + inclusive - sum;
  const uint32_t total = __reduce_add_sync(~0u, others);
#pragma unroll
  for (int i = 0; i < kStartsPerThread; ++i) {
    if (i < per && first + i < blocks) starts[first + i] = static_cast<uint16_t>(at - loads.start[i]);
    at += count[i];
  }
  __syncthreads();
  return total;
}

// Survivors to smem.candidate in position order; candidate_entry is their place in the row's lists. Ends after a
// barrier.
__device__ inline void move_survivors(FinishSmem& smem, const FinishLoads& loads, const SplitParams& p) {
  const int32_t entries = p.segment_count() * p.list_capacity();  // at most kCandidates
#pragma unroll
  for (int i = 0; i < kEntriesPerThread; ++i) {
    const int32_t e = i * kTopkThreads + static_cast<int32_t>(threadIdx.x);
    if (e >= entries) continue;
    const int32_t segment = p.capacity.divide(e);
    const auto place = static_cast<uint32_t>(e - segment * p.list_capacity());
    if (place >= smem.totals[segment]) continue;
    const uint32_t at = smem.topk.chosen[loads.block[i] * p.segment_count() + segment] + place;
    smem.topk.candidate[at] = loads.value[i];
    smem.topk.candidate_entry[at] = static_cast<uint16_t>(e);
  }
  __syncthreads();
  smem.topk.bins[threadIdx.x] = {};
  __syncthreads();
}

template <int kKeys>
__device__ inline uint32_t choose_survivors(FinishSmem& smem, uint32_t total, int32_t topk) {
  const RegisterKeys<kKeys> keys = candidate_keys<kKeys>(smem.topk, total);
  const Border border = find_border(smem.topk, keys, topk, kFew);
  if (border.low < smem.highest_bound) return kTooMany;  // something withheld may belong to the result
  return store_mask<RegisterKeys<kKeys>::kPieces, true>(smem.topk, chosen_mask(smem.topk, keys, border));
}

__device__ inline uint32_t choose_from_survivors(FinishSmem& smem, const SplitParams& p, const Survivors& in) {
  const FinishLoads loads(p, in);
  if (!share_heads(smem, loads, p.segment_count())) return kTooMany;
  const uint32_t total = place_blocks(smem, loads, p);
  move_survivors(smem, loads, p);
  return total <= 8 * kTopkThreads ? choose_survivors<8>(smem, total, p.row[0].topk)
                                   : choose_survivors<12>(smem, total, p.row[0].topk);
}

// The whole row by one CTA: lists of its segments of 32768, then the choice among these.
__device__ inline void finish_slowly(TopkSmem& smem, const SplitParams& p, int32_t row, Window w) {
  constexpr int kKeys = kMaxKeysPerThread;
  const int32_t segments = (p.row[0].entries + kKeys * kTopkThreads - 1) / (kKeys * kTopkThreads);
#pragma unroll 1
  for (int32_t segment = 0; segment <= segments; ++segment) {
    const bool last = segment == segments;
    const TopkParams& level = p.row[last ? 1 : 0];
    const int32_t base = last ? 0 : segment * kKeys * kTopkThreads;
    __syncthreads();  // bins lie where chosen entries were; lists of earlier rounds become visible
    smem.bins[threadIdx.x] = {};
    __syncthreads();
    const auto total = static_cast<int32_t>(choose_from_segment<kKeys>(smem, level, row, w, base));
    if (last) {
      store_chosen(smem, level, row, base, total);
    } else {
      store_list(smem, level, row, segment, base, total);
    }
  }
}

__global__ void __launch_bounds__(kTopkThreads, 1) topk_finish(const __grid_constant__ SplitParams p) {
  __shared__ FinishSmem smem;
  const auto row = static_cast<int32_t>(blockIdx.x);
  wait_for_previous_kernel();
  const Window w = window_of(p.row[0].sequences, p.row[0].first_token + row);
  if (w.count() <= p.row[0].topk) {
    store_whole_window(p.row[0], row, w);
    return;
  }
  const Survivors in(p, row, 0);
  const uint32_t total = choose_from_survivors(smem, p, in);
  if (total == kTooMany) {
    finish_slowly(smem.topk, p, row, w);
    return;
  }
  store_chosen(smem.topk, p.row[2], row, 0, static_cast<int32_t>(total));
}

}  // namespace winnow::cuda::indexer
