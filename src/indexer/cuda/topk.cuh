// SPDX-License-Identifier: Apache-2.0
// Exact top-k of rows of float scores, sm_80 and up. Exact for any input: larger value first, then the lower position;
// NaN below everything, -0 equals +0. Output ascending by position.
//   grid   rows * segments CTAs (segment fastest). Rows longer than a CTA holds go through a tree of launches: each
//          CTA leaves the topk of its segment as a list in ascending order, the next level selects from the lists
//   cta    1024 threads that keep their 4 to 32 values in registers: global memory is read once
//   smem   histogram 8 KB, chosen indices 8 KB, counts 1 KB
//   bound  latency: one read of the row (1.2 us for 128 KB on one SM), two or three histogram passes, one emission
//
// How the border value is found, without overflow at any number of ties:
//   1  Each thread keeps the largest of ceil(topk / 1024) disjoint groups of its values. The least of these maxima,
//   `low`, has at
//      least topk values at or above it; typically six of ten values fall below and never touch the histogram.
//   2  Values in [low, largest] are counted in 2048 equal bins of their ordered bit patterns. The bin where the count
//   from
//      above passes topk becomes the new range; two or three rounds reach a single value. Ties at that value need no
//      list: the emission counts them in position order. So 16K or 32K equal values at the border cost nothing more.
#pragma once

#include "indexer/cuda/device.cuh"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::cuda::indexer {

constexpr int kBins = 2048;
constexpr int kTopkWarps = kTopkThreads / 32;

struct TopkParams {
  Sequences sequences;
  // Input of the first level: scores, column = position. Later levels: lists of (key, position), key 0 = empty.
  const float* scores;  // null on later levels
  int64_t pitch;
  bool vector;  // 16-byte loads of scores
  const uint32_t* in_keys;
  const int32_t* in_positions;
  int64_t in_stride;          // entries from one row to the next
  int32_t entries;            // of a row that this level reads
  int32_t segments;           // CTAs per row
  int32_t topk, list_length;  // list_length: topk rounded up to kListAlign
  // Output of every level but the last; null on the last.
  uint32_t* out_keys;
  int32_t* out_positions;
  int64_t list_stride;
  // Output of the last level.
  int32_t* out;
  int64_t out_stride;
  int32_t* out_len;  // may be null
  bool output_slots;
  int32_t first_token;  // token of row 0
};

// Order-preserving: a > b as scores iff key_of(a) > key_of(b). NaN is 1, empty is 0, -inf is 0x007FFFFF.
__device__ inline uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 + 0 is +0
  if (score != score) return 1;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct TopkSmem {
  uint32_t bins[kBins];
  uint16_t chosen[kMaxTopk];                            // index inside the segment
  uint32_t counts[kTopkWarps * kMaxKeysPerThread / 4];  // above | equal << 16, per 128 values, in position order
  uint32_t warp_low[kTopkWarps], warp_high[kTopkWarps], warp_sum[kTopkWarps];
  uint32_t bin, above, inside;  // border bin, values in higher bins, values in it
  uint32_t total;               // chosen in all
};

// A row range in 16-byte pieces: value 4c + j of a thread is entry base + 4096 * c + 4 * thread + j.
__device__ inline int entry_of(int piece) { return piece * kTopkThreads * 4 + static_cast<int>(threadIdx.x) * 4; }

template <int kKeys>
__device__ inline void load_scores(uint32_t (&key)[kKeys], const TopkParams& p, const float* row, Window w,
                                   int32_t base) {
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = base + entry_of(c);
    float x[4] = {};
    if (first < w.end && first + 4 > w.begin) {
      if (p.vector && first >= w.begin && first + 4 <= w.end) {
        const float4 v = *reinterpret_cast<const float4*>(row + first);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (first + j >= w.begin && first + j < w.end) x[j] = row[first + j];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) key[4 * c + j] = first + j >= w.begin && first + j < w.end ? key_of(x[j]) : 0;
  }
}

template <int kKeys>
__device__ inline void load_list(uint32_t (&key)[kKeys], const uint32_t* row, int32_t entries, int32_t base) {
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = base + entry_of(c);  // entries is a multiple of 4
    const uint4 v = first < entries ? *reinterpret_cast<const uint4*>(row + first) : uint4{0, 0, 0, 0};
    key[4 * c] = v.x, key[4 * c + 1] = v.y, key[4 * c + 2] = v.z, key[4 * c + 3] = v.w;
  }
}

struct Range {
  uint32_t low, high;
};

// At least topk keys are >= low (or low is 1 and there are fewer); none is > high. Ends after a barrier.
template <int kKeys>
__device__ inline Range bound_range(TopkSmem& smem, const uint32_t (&key)[kKeys], int32_t topk) {
  uint32_t largest[4] = {};  // group j: values with index % 4 == j
#pragma unroll
  for (int i = 0; i < kKeys; ++i) largest[i % 4] = max(largest[i % 4], key[i]);
  const uint32_t a = max(largest[0], largest[1]), b = max(largest[2], largest[3]);
  uint32_t low = max(a, b);
  if (topk > kTopkThreads) low = min(a, b);
  if (topk > 2 * kTopkThreads) low = min(min(largest[0], largest[1]), min(largest[2], largest[3]));
  const uint32_t warp_low = __reduce_min_sync(~0u, low), warp_high = __reduce_max_sync(~0u, max(a, b));
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  if (lane == 0) {
    smem.warp_low[warp] = warp_low;
    smem.warp_high[warp] = warp_high;
  }
  __syncthreads();
  return {max(__reduce_min_sync(~0u, smem.warp_low[lane]), 1u), __reduce_max_sync(~0u, smem.warp_high[lane])};
}

// Finds the bin that holds the need-th key from above; bins are cleared again. Ends after a barrier. False: all bins
// together hold fewer than `need`.
__device__ inline bool find_border(TopkSmem& smem, uint32_t need) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const uint32_t upper_bin = kBins - 1 - 2 * threadIdx.x;  // two bins a thread, from the top
  const uint32_t upper = smem.bins[upper_bin], lower = smem.bins[upper_bin - 1];
  smem.bins[upper_bin] = 0;
  smem.bins[upper_bin - 1] = 0;
  uint32_t sum = upper + lower;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) smem.warp_sum[warp] = sum;
  __syncthreads();
  const uint32_t before_warp = __reduce_add_sync(~0u, lane < warp ? smem.warp_sum[lane] : 0);
  const uint32_t total = __reduce_add_sync(~0u, smem.warp_sum[lane]);
  const uint32_t before = before_warp + sum - upper - lower;
  if (before < need && need <= before + upper) {
    smem.bin = upper_bin;
    smem.above = before;
    smem.inside = upper;
  } else if (before + upper < need && need <= before + upper + lower) {
    smem.bin = upper_bin - 1;
    smem.above = before + upper;
    smem.inside = lower;
  }
  __syncthreads();
  return total >= need;
}

struct Border {
  uint32_t value;  // keys above it are chosen
  uint32_t equal;  // and this many of the keys equal to it, lowest position first
};
constexpr uint32_t kAllEqual = 0xFFFF;  // more than a segment holds

template <int kKeys>
__device__ inline Border find_border_value(TopkSmem& smem, const uint32_t (&key)[kKeys], int32_t topk) {
  Range range = bound_range(smem, key, topk);
  uint32_t need = static_cast<uint32_t>(topk);
  while (range.low < range.high) {
    const uint32_t span = range.high - range.low;
    const int shift = max(0, 32 - __clz(static_cast<int>(span)) - 11);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (key[i] >= range.low && key[i] <= range.high) atomicAdd(&smem.bins[(key[i] - range.low) >> shift], 1u);
    }
    __syncthreads();
    if (!find_border(smem, need)) return {1, kAllEqual};  // fewer than topk in all: every key from 1 up
    need -= smem.above;
    range.low += smem.bin << shift;
    range.high = min(range.high, range.low + ((1u << shift) - 1));
    if (smem.inside == need) return {range.low, kAllEqual};  // the bin is chosen whole
  }
  // One value left. When it is the least of all, fewer than `need` may carry it; the emission counts what is there.
  return {range.low, need};
}

// Writes the indices of chosen keys to smem.chosen, ascending, and their number to smem.total. Ends after a barrier.
template <int kKeys>
__device__ inline void choose(TopkSmem& smem, const uint32_t (&key)[kKeys], Border border) {
  constexpr int kPieces = kKeys / 4;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const auto count_piece = [&](int c) {
    uint32_t count = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) count += (key[4 * c + j] > border.value) + ((key[4 * c + j] == border.value) << 16);
    return count;
  };
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t sum = __reduce_add_sync(~0u, count_piece(c));
    if (lane == 0) smem.counts[c * kTopkWarps + warp] = sum;
  }
  __syncthreads();
  if (warp == 0) {  // exclusive prefix over all pieces of 128
    uint32_t sum = 0;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) sum += smem.counts[lane * kPieces + c];
    uint32_t inclusive = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, inclusive, step);
      if (lane >= step) inclusive += other;
    }
    uint32_t running = inclusive - sum;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const uint32_t count = smem.counts[lane * kPieces + c];
      smem.counts[lane * kPieces + c] = running;
      running += count;
    }
    if (lane == 31) smem.total = (running & 0xFFFF) + min(running >> 16, border.equal);
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t count = count_piece(c);
    uint32_t inclusive = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, inclusive, step);
      if (lane >= step) inclusive += other;
    }
    const uint32_t before = smem.counts[c * kTopkWarps + warp] + inclusive - count;
    uint32_t above = before & 0xFFFF, equal = before >> 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool is_equal = key[4 * c + j] == border.value;
      if (key[4 * c + j] > border.value || (is_equal && equal < border.equal)) {
        smem.chosen[above + min(equal, border.equal)] = static_cast<uint16_t>(entry_of(c) + j);
      }
      above += key[4 * c + j] > border.value;
      equal += is_equal;
    }
  }
  __syncthreads();
}

__device__ inline int32_t output_entry(const TopkParams& p, int64_t token, int32_t position) {
  if (!p.output_slots) return position;
  const int32_t* table = p.sequences.page_table + p.sequences.seq[token] * p.sequences.table_stride;
  return slot_of(p.sequences, table, position);
}

// A row that selects all it sees, or nothing: positions in order.
__device__ inline void store_whole_window(const TopkParams& p, int32_t row, Window w) {
  const int64_t token = p.first_token + row;
  int32_t* out = p.out + token * p.out_stride;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.topk; i += kTopkThreads) {
    out[i] = i < w.count() ? output_entry(p, token, w.begin + i) : -1;
  }
  if (p.out_len != nullptr && threadIdx.x == 0) p.out_len[token] = w.count();
}

__device__ inline int32_t position_at(const TopkParams& p, int32_t row, int32_t entry) {
  return p.scores != nullptr ? entry : p.in_positions[row * p.in_stride + entry];
}

__device__ inline void store_chosen(const TopkSmem& smem, const TopkParams& p, int32_t row, int32_t base) {
  const int64_t token = p.first_token + row;
  const auto total = static_cast<int32_t>(smem.total);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.topk; i += kTopkThreads) {
    p.out[token * p.out_stride + i] =
        i < total ? output_entry(p, token, position_at(p, row, base + smem.chosen[i])) : -1;
  }
  if (p.out_len != nullptr && threadIdx.x == 0) p.out_len[token] = total;
}

__device__ inline void store_list(const TopkSmem& smem, const TopkParams& p, int32_t row, int32_t segment, int32_t base,
                                  int32_t total) {
  const int64_t list = row * p.list_stride + int64_t{segment} * p.list_length;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.list_length; i += kTopkThreads) {
    uint32_t key = 0;
    if (i < total) {
      const int32_t entry = base + smem.chosen[i];
      key = p.scores != nullptr ? key_of(p.scores[row * p.pitch + entry]) : p.in_keys[row * p.in_stride + entry];
      p.out_positions[list + i] = position_at(p, row, entry);
    }
    p.out_keys[list + i] = key;
  }
}

template <int kKeys>
__global__ void __launch_bounds__(kTopkThreads, 1) topk_level(const __grid_constant__ TopkParams p) {
  __shared__ TopkSmem smem;
  const int32_t row = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(p.segments));
  const int32_t segment = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(p.segments));
  const Window w = window_of(p.sequences, p.first_token + row);
  const bool last = p.out_keys == nullptr;
  if (w.count() <= p.topk) {  // nothing was scored, lists of this row are never read
    if (last) store_whole_window(p, row, w);
    return;
  }
  const int32_t base = segment * kKeys * kTopkThreads;
  if (p.scores != nullptr && !last && (base >= w.end || base + kKeys * kTopkThreads <= w.begin)) {
    store_list(smem, p, row, segment, base, 0);
    return;
  }
  smem.bins[threadIdx.x] = 0;
  smem.bins[threadIdx.x + kTopkThreads] = 0;
  uint32_t key[kKeys];
  if (p.scores != nullptr) {
    load_scores(key, p, p.scores + row * p.pitch, w, base);
  } else {
    load_list(key, p.in_keys + row * p.in_stride, p.entries, base);
  }
  choose(smem, key, find_border_value(smem, key, p.topk));
  if (last) {
    store_chosen(smem, p, row, base);
  } else {
    store_list(smem, p, row, segment, base, static_cast<int32_t>(smem.total));
  }
}

}  // namespace winnow::cuda::indexer
