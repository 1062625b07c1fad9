// SPDX-License-Identifier: Apache-2.0
// Exact top-k of rows of float scores, sm_80 and up. Exact for any input: larger value first, then the lower position;
// NaN below everything, -0 equals +0. Output ascending by position.
//   grid   rows * segments CTAs (segment fastest). Rows longer than a CTA holds go through a tree of launches: each
//          CTA leaves the topk of its segment as a list in ascending order, the next level selects from the lists
//   cta    512 threads that keep their 8 to 64 values in registers: global memory is read once
//   smem   45 KB: histogram 8 KB (later the chosen entries), candidates 36 KB, counts 1 KB
//   bound  latency: one read of the row (1.2 us for 128 KB on one SM), then a chain of short steps between barriers
//
// How a segment is cut to its topk:
//   1  A bound from maxima. The maxima of all groups of four neighbours are selected from first, a quarter of the
//   values:
//      the topk-th largest maximum has at least topk values at or above it, and few more when values are spread.
//   2  Values from the bound up, usually 1.1 to 1.3 topk of them, move to shared memory in order of position.
//   3  The border among them: counted in 2048 equal bins of the ordered bit patterns between the bounds, the bin where
//      the count passes topk becomes the new range, until it holds a few values or carries a single one.
//   4  A few values are ranked against each other. Ties are counted in order of position. Chosen entries are written
//      by prefix sums, which makes them ascending.
// When step 2 finds more than it has room for (ties, a row of two values, NaN), steps 3 and 4 run on the whole segment
// instead, read again from memory: slower, as exact, and nothing is ever dropped. Small segments begin with step 3.
#pragma once

#include <type_traits>

#include "indexer/cuda/device.cuh"
#include "indexer/cuda/select_admit.hpp"
#include "indexer/cuda/topk_params.cuh"

namespace winnow::cuda::indexer {

constexpr int kBins = 2048;
constexpr int kTopkWarps = kTopkThreads / 32;
constexpr int kBinsPerThread = kBins / kTopkThreads;
constexpr int kCandidates = 12 * kTopkThreads;  // room of step 2
constexpr uint32_t kFew = 32;                   // values that step 4 ranks
constexpr uint32_t kEmpty = 0xFFFFFFFF;         // bits of an unused list entry; lists hold no other NaN with these bits
constexpr uint32_t kNan = 0x7FC00000;
constexpr uint32_t kKeyOfMinusInf = 0x007FFFFF;
static_assert(kTopkWarps == 16 && kBinsPerThread == 4);

// Order-preserving: a > b as scores iff key_of(a) > key_of(b). NaN is 1, empty is 0, -inf is 0x007FFFFF.
__device__ inline uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 + 0 is +0
  if (score != score) return 1;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of(uint32_t key) {  // key from -inf to +inf
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFF : ~key);
}

struct TopkSmem {
  union {
    uint4 bins[kTopkThreads];   // four bins a thread
    uint16_t chosen[kMaxTopk];  // entries of the segment; written when the bins have served
  };
  float candidate[kCandidates];
  uint16_t candidate_entry[kCandidates];
  uint32_t counts[kTopkWarps * kMaxKeysPerThread / 4];  // per 128 values, in position order
  uint32_t warp_low[kTopkWarps], warp_high[kTopkWarps], warp_sum[kTopkWarps];
  uint32_t bin, above, inside;  // border bin, values in higher bins, values in it
  uint32_t few;                 // values in the list below
  uint32_t few_key[kFew];
  uint32_t few_entry[kFew];
};
static_assert(sizeof(TopkSmem) <= 48 * 1024 && kMaxTopk * 2 <= kBins * 4);

// Value 4c + j of a thread is entry 2048 * c + 4 * thread + j of its segment: 16-byte loads, every thread sees all
// parts.
__device__ inline int entry_of(int piece) { return piece * kTopkThreads * 4 + static_cast<int>(threadIdx.x) * 4; }

// Values 4c to 4c + 3 of this thread. Positions outside the window and unused list entries become kEmpty; so may a
// score that is NaN, see piece_keys.
__device__ inline void load_piece(float (&x)[4], const TopkParams& p, int32_t row, Window w, int32_t base, int c) {
  const int32_t first = base + entry_of(c);
  const float empty = __uint_as_float(kEmpty);
  const bool scores = p.scores != nullptr;
  const float* source = scores ? p.scores + row * p.pitch : p.in_values + row * p.in_stride;
  const bool whole = scores ? first >= w.begin && first + 4 <= w.end : first < p.entries;  // entries: a multiple of 4
  if (whole && (p.vector || !scores)) {
    const float4 v = *reinterpret_cast<const float4*>(source + first);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    x[j] = scores && first + j >= w.begin && first + j < w.end ? source[first + j] : empty;
  }
}

// Keys of a piece, 0 for empty entries. A score may be a NaN with the bits of kEmpty, so the window decides there.
__device__ inline void piece_keys(uint32_t (&key)[4], const float (&x)[4], const TopkParams& p, Window w, int32_t base,
                                  int c) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int32_t position = base + entry_of(c) + j;
    const bool used = p.scores != nullptr ? position >= w.begin && position < w.end : __float_as_uint(x[j]) != kEmpty;
    key[j] = used ? key_of(x[j]) : 0;
  }
}

// Where steps 3 and 4 take keys from, four at a time: registers, or the segment in memory.
template <int kKeys>
struct RegisterKeys {
  static constexpr int kPieces = kKeys / 4, kUnroll = kPieces;
  uint32_t key[kKeys];
  __device__ void piece(uint32_t (&out)[4], int c) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j] = key[4 * c + j];
  }
};

template <int kKeys>
struct MemoryKeys {
  static constexpr int kPieces = kKeys / 4, kUnroll = 1;
  const TopkParams& p;
  int32_t row;
  Window w;
  int32_t base;
  __device__ void piece(uint32_t (&out)[4], int c) const {
    float x[4];
    load_piece(x, p, row, w, base, c);
    piece_keys(out, x, p, w, base, c);
  }
};

// Bit i for key i of a thread.
template <int kKeys>
using Mask = std::conditional_t<(kKeys > 32), uint64_t, uint32_t>;
template <class Keys>
using MaskOf = Mask<4 * Keys::kPieces>;

// f(key, i, g) for every key of this thread: i its index, g = i % 8 in a form that is constant where loops are
// unrolled.
template <class Keys, class F>
__device__ inline void for_each_key(const Keys& keys, F f) {
  constexpr int kUnroll = Keys::kUnroll;
#pragma unroll kUnroll
  for (int c = 0; c < Keys::kPieces; c += 2) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      if (c + s >= Keys::kPieces) continue;
      uint32_t key[4];
      keys.piece(key, c + s);
#pragma unroll
      for (int j = 0; j < 4; ++j) f(key[j], 4 * (c + s) + j, 4 * s + j);
    }
  }
}

struct Range {
  uint32_t low, high;
};

// At least topk keys are >= low (or low is 1 and there are fewer); none is > high. Ends after a barrier.
// The values of the CTA fall into topk groups or more; each group's largest is at least the least of these.
template <class Keys>
__device__ inline Range bound_range(TopkSmem& smem, const Keys& keys, int32_t topk) {
  uint32_t g[8] = {};  // largest of eight groups of this thread
  for_each_key(keys, [&](uint32_t key, int, int group) { g[group] = max(g[group], key); });
  const uint32_t a = max(g[0], g[4]), b = max(g[1], g[5]), c = max(g[2], g[6]), d = max(g[3], g[7]);
  const uint32_t high = max(max(a, b), max(c, d));
  uint32_t low = high;
  if (topk > kTopkThreads) low = min(max(a, c), max(b, d));
  if (topk > 2 * kTopkThreads) low = min(min(a, b), min(c, d));
  if (topk > 4 * kTopkThreads) low = min(min(min(g[0], g[1]), min(g[2], g[3])), min(min(g[4], g[5]), min(g[6], g[7])));
  const uint32_t warp_low = __reduce_min_sync(~0u, low), warp_high = __reduce_max_sync(~0u, high);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  if (lane == 0) {
    smem.warp_low[warp] = warp_low;
    smem.warp_high[warp] = warp_high;
  }
  __syncthreads();
  const int other = lane % kTopkWarps;
  return {max(__reduce_min_sync(~0u, smem.warp_low[other]), 1u), __reduce_max_sync(~0u, smem.warp_high[other])};
}

// Finds the bin that holds the need-th key from above; bins are cleared again. Ends after a barrier. False: all bins
// together hold fewer than `need`.
__device__ inline bool find_bin(TopkSmem& smem, uint32_t need) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const uint32_t quad = kTopkThreads - 1 - threadIdx.x;  // from the top
  const uint4 count = smem.bins[quad];
  smem.bins[quad] = {};
  const uint32_t own = count.x + count.y + count.z + count.w;
  uint32_t sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) smem.warp_sum[warp] = sum;
  __syncthreads();
  const uint32_t others = lane < kTopkWarps ? smem.warp_sum[lane] : 0;
  const uint32_t before_warp = __reduce_add_sync(~0u, lane < warp ? others : 0);
  const uint32_t total = __reduce_add_sync(~0u, others);
  uint32_t before = before_warp + sum - own;
  if (before < need && need <= before + own) {
    const uint32_t from_top[4] = {count.w, count.z, count.y, count.x};
    uint32_t bin = quad * 4 + 3;
#pragma unroll
    for (int i = 0; i < 4; ++i, --bin) {
      if (before < need && need <= before + from_top[i]) {
        smem.bin = bin;
        smem.above = before;
        smem.inside = from_top[i];
      }
      before += from_top[i];
    }
  }
  __syncthreads();
  return total >= need;
}

// Keys above `high` are chosen, and `need` of the `inside` keys from low to high; those are few, or have one value.
struct Border {
  uint32_t low, high, need, inside;
};
constexpr uint32_t kUnknown = 0xFFFFFFFF;  // `inside` of a range that was one value from the start

template <class Keys>
__device__ inline Border find_border(TopkSmem& smem, const Keys& keys, int32_t topk, uint32_t few) {
  Range range = bound_range(smem, keys, topk);
  Border border{range.low, range.high, static_cast<uint32_t>(topk), kUnknown};
  auto* bins = reinterpret_cast<uint32_t*>(smem.bins);
  while (border.low < border.high) {
    const int shift = max(0, 32 - __clz(static_cast<int>(border.high - border.low)) - 11);
    for_each_key(keys, [&](uint32_t key, int, int) {
      if (key >= border.low && key <= border.high) atomicAdd(&bins[(key - border.low) >> shift], 1u);
    });
    __syncthreads();
    if (!find_bin(smem, border.need)) return {1, ~0u, 1, 1};  // fewer than topk in all: every key from 1 up
    border.need -= smem.above;
    border.inside = smem.inside;
    border.low += smem.bin << shift;
    border.high = min(border.high, border.low + ((1u << shift) - 1));
    if (border.inside == border.need || border.inside <= few) break;
  }
  return border;
}

// Exclusive prefix, in position order, of what each warp counted in each piece: every warp reads all counts and scans
// them for itself, which spares a barrier. counts[c * 16 + warp] of kPieces pieces, rounded up to a power of two.
template <int kPieces>
struct Prefix {
  static constexpr int kPadded = kPieces <= 2 ? 2 : kPieces <= 4 ? 4 : kPieces <= 8 ? 8 : 16;
  static constexpr int kPerLane = kPadded * kTopkWarps / 32;
  uint32_t own, total;

  // Between a barrier after the counts were stored and another before they are stored again.
  __device__ void scan(const TopkSmem& smem, int warp, int lane) {
    uint32_t sum = 0, part = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i == warp % kPerLane) part = sum;
      const int at = lane * kPerLane + i;
      if (kPadded == kPieces || at < kPieces * kTopkWarps) sum += smem.counts[at];
    }
    uint32_t inclusive = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, inclusive, step);
      if (lane >= step) inclusive += other;
    }
    own = inclusive - sum + part;
    total = __shfl_sync(~0u, inclusive, 31);
  }
  __device__ uint32_t before(int c, int warp) const {
    return __shfl_sync(~0u, own, c * (kTopkWarps / kPerLane) + warp / kPerLane);
  }
};

// Sum of `count` (0 to 4) over the lanes below this one.
__device__ inline uint32_t count_below(uint32_t count, uint32_t below) {
  const uint32_t ones = __ballot_sync(~0u, count & 1), twos = __ballot_sync(~0u, count & 2);
  const uint32_t fours = __ballot_sync(~0u, count & 4);
  return __popc(ones & below) + 2 * __popc(twos & below) + 4 * __popc(fours & below);
}

template <int kPieces>
__device__ inline Prefix<kPieces> prefix_of(TopkSmem& smem, Mask<4 * kPieces> mask, int warp, int lane) {
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t sum = __reduce_add_sync(~0u, __popc(static_cast<uint32_t>(mask >> (4 * c)) & 0xF));
    if (lane == 0) smem.counts[c * kTopkWarps + warp] = sum;
  }
  __syncthreads();
  Prefix<kPieces> prefix;
  prefix.scan(smem, warp, lane);
  return prefix;
}

// Bit i: key i of this thread is chosen. Step 4 without the writing.
template <class Keys>
__device__ inline MaskOf<Keys> chosen_mask(TopkSmem& smem, const Keys& keys, Border border) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  using Bits = MaskOf<Keys>;
  Bits above = 0, border_bits = 0;
  for_each_key(keys, [&](uint32_t key, int i, int) {
    above |= Bits{key > border.high} << i;
    border_bits |= Bits{key >= border.low && key <= border.high} << i;
  });
  if (border.need == border.inside) return above | border_bits;
  if (border.inside <= kFew) {
    if (threadIdx.x == 0) smem.few = 0;
    __syncthreads();
    for_each_key(keys, [&](uint32_t key, int i, int) {
      if ((border_bits >> i & 1) == 0) return;
      const uint32_t at = atomicAdd(&smem.few, 1u);
      smem.few_key[at] = key;
      smem.few_entry[at] = static_cast<uint32_t>(entry_of(i / 4) + i % 4);
    });
    __syncthreads();
    for_each_key(keys, [&](uint32_t key, int i, int) {
      if ((border_bits >> i & 1) == 0) return;
      const auto entry = static_cast<uint32_t>(entry_of(i / 4) + i % 4);
      uint32_t rank = 0;
      for (uint32_t other = 0; other < border.inside; ++other) {
        rank += smem.few_key[other] > key || (smem.few_key[other] == key && smem.few_entry[other] < entry);
      }
      above |= Bits{rank < border.need} << i;
    });
    return above;
  }
  // One value, more often than there is room: the first `need` by position.
  const Prefix<Keys::kPieces> prefix = prefix_of<Keys::kPieces>(smem, border_bits, warp, lane);
#pragma unroll 1
  for (int c = 0; c < Keys::kPieces; ++c) {
    const uint32_t bits = static_cast<uint32_t>(border_bits >> (4 * c)) & 0xF;
    uint32_t rank = prefix.before(c, warp) + count_below(__popc(bits), (1u << lane) - 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((bits >> j & 1) != 0 && rank++ < border.need) above |= Bits{1} << (4 * c + j);
    }
  }
  __syncthreads();  // counts are stored again
  return above;
}

// Writes the entries of the mask to smem.chosen, ascending, and returns their number. With candidates, bit i stands for
// a candidate and its entry is looked up. Ends after a barrier.
template <int kPieces, bool kFromCandidates>
__device__ inline uint32_t store_mask(TopkSmem& smem, Mask<4 * kPieces> mask) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const Prefix<kPieces> prefix = prefix_of<kPieces>(smem, mask, warp, lane);
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t bits = static_cast<uint32_t>(mask >> (4 * c)) & 0xF;
    uint32_t at = prefix.before(c, warp) + count_below(__popc(bits), (1u << lane) - 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((bits >> j & 1) == 0) continue;
      const int i = entry_of(c) + j;
      smem.chosen[at++] = kFromCandidates ? smem.candidate_entry[i] : static_cast<uint16_t>(i);
    }
  }
  __syncthreads();
  return prefix.total;
}

// Steps 3 and 4 on given keys; returns how many were chosen.
template <bool kFromCandidates, class Keys>
__device__ inline uint32_t choose(TopkSmem& smem, const Keys& keys, int32_t topk) {
  const Border border = find_border(smem, keys, topk, kFew);
  return store_mask<Keys::kPieces, kFromCandidates>(smem, chosen_mask(smem, keys, border));
}

// All values of a thread, by 16-byte loads that go out together; empty outside the window. Groups of four that the
// window cuts are read whole: the scorer writes them so, and run_topk asks for rows of whole groups.
template <int kKeys>
__device__ inline void load_whole_pieces(float (&x)[kKeys], const TopkParams& p, int32_t row, Window w, int32_t base) {
  const bool scores = p.scores != nullptr;
  const float* source = scores ? p.scores + row * p.pitch : p.in_values + row * p.in_stride;
  const int32_t begin = scores ? w.begin : 0, end = scores ? w.end : p.entries;
  const float empty = __uint_as_float(kEmpty);
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = base + entry_of(c);
    float4 v{empty, empty, empty, empty};
    if (first < end && first + 4 > begin) v = *reinterpret_cast<const float4*>(source + first);
    x[4 * c] = v.x, x[4 * c + 1] = v.y, x[4 * c + 2] = v.z, x[4 * c + 3] = v.w;
  }
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    const int32_t first = base + entry_of(c);
    if (first >= begin && first + 4 <= end) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j < begin || first + j >= end) x[4 * c + j] = empty;
    }
  }
}

// Step 2: moves the values from `bound` up to shared memory, ascending by entry, and returns how many there are; more
// than kCandidates are not moved. Ends after a barrier.
template <int kKeys>
__device__ inline uint32_t gather_candidates(TopkSmem& smem, const float (&x)[kKeys], float bound) {
  constexpr int kPieces = kKeys / 4;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  Mask<kKeys> mask = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) mask |= Mask<kKeys>{x[i] >= bound} << i;  // false for NaN and empty
  const Prefix<kPieces> prefix = prefix_of<kPieces>(smem, mask, warp, lane);
  if (prefix.total > kCandidates) return prefix.total;  // the whole CTA agrees
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const uint32_t bits = static_cast<uint32_t>(mask >> (4 * c)) & 0xF;
    uint32_t at = prefix.before(c, warp) + count_below(__popc(bits), (1u << lane) - 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((bits >> j & 1) == 0) continue;
      smem.candidate[at] = x[4 * c + j];
      smem.candidate_entry[at++] = static_cast<uint16_t>(entry_of(c) + j);
    }
  }
  __syncthreads();
  return prefix.total;
}

template <int kKeys>
__device__ inline RegisterKeys<kKeys> candidate_keys(const TopkSmem& smem, uint32_t total) {
  RegisterKeys<kKeys> keys;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const auto at = static_cast<uint32_t>(entry_of(i / 4) + i % 4);
    keys.key[i] = at < total ? key_of(smem.candidate[at]) : 0;
  }
  return keys;
}

constexpr uint32_t kTooMany = 0xFFFFFFFF;

// Steps 1 to 4 for larger segments, aligned for 16-byte loads. kTooMany: too many values from the bound up, nothing was
// chosen.
template <int kKeys>
__device__ inline uint32_t choose_by_bound(TopkSmem& smem, const TopkParams& p, int32_t row, Window w, int32_t base) {
  float x[kKeys];
  load_whole_pieces(x, p, row, w, base);
  RegisterKeys<kKeys / 4> largest;  // of each four neighbours; fmaxf passes over NaN
#pragma unroll
  for (int c = 0; c < kKeys / 4; ++c) {
    largest.key[c] = key_of(fmaxf(fmaxf(x[4 * c], x[4 * c + 1]), fmaxf(x[4 * c + 2], x[4 * c + 3])));
  }
  constexpr uint32_t kSlack = 128;  // values that step 3 sorts out more cheaply than another round here
  const uint32_t bound = find_border(smem, largest, p.topk, kSlack).low;
  if (bound < kKeyOfMinusInf) return kTooMany;  // NaN must be chosen too
  const uint32_t total = gather_candidates(smem, x, value_of(bound));
  if (total > kCandidates) return kTooMany;
  return total <= 8 * kTopkThreads ? choose<true>(smem, candidate_keys<8>(smem, total), p.topk)
                                   : choose<true>(smem, candidate_keys<12>(smem, total), p.topk);
}

template <int kKeys>
__device__ inline uint32_t choose_from_segment(TopkSmem& smem, const TopkParams& p, int32_t row, Window w,
                                               int32_t base) {
  const MemoryKeys<kKeys> all{p, row, w, base};
  if constexpr (kKeys >= 16) {
    const bool aligned = p.vector || p.scores == nullptr;
    if (aligned && kKeys / 4 * kTopkThreads >= p.topk) {  // as many maxima as values wanted
      const uint32_t total = choose_by_bound<kKeys>(smem, p, row, w, base);
      if (total != kTooMany) return total;
    }
    return choose<false>(smem, all, p.topk);
  } else {
    RegisterKeys<kKeys> keys;
#pragma unroll
    for (int c = 0; c < kKeys / 4; ++c) {
      uint32_t four[4];
      all.piece(four, c);
#pragma unroll
      for (int j = 0; j < 4; ++j) keys.key[4 * c + j] = four[j];
    }
    return choose<false>(smem, keys, p.topk);
  }
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
#pragma unroll 4
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.topk; i += kTopkThreads) {
    out[i] = i < w.count() ? output_entry(p, token, w.begin + i) : -1;
  }
  if (p.out_len != nullptr && threadIdx.x == 0) p.out_len[token] = w.count();
}

__device__ inline int32_t position_at(const TopkParams& p, int32_t row, int32_t entry) {
  return p.scores != nullptr ? entry : p.in_positions[row * p.in_stride + entry];
}

constexpr int kBatch = 4;  // stores whose loads go out together: each is a chain of up to three

__device__ inline void store_chosen(const TopkSmem& smem, const TopkParams& p, int32_t row, int32_t base,
                                    int32_t total) {
  const int64_t token = p.first_token + row;
  int32_t* out = p.out + token * p.out_stride;
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < p.topk; first += kBatch * kTopkThreads) {
    int32_t entry[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int32_t i = first + u * kTopkThreads;
      entry[u] = i < total ? position_at(p, row, base + smem.chosen[i]) : -1;
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      if (entry[u] >= 0) entry[u] = output_entry(p, token, entry[u]);
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      if (first + u * kTopkThreads < p.topk) out[first + u * kTopkThreads] = entry[u];
    }
  }
  if (p.out_len != nullptr && threadIdx.x == 0) p.out_len[token] = total;
}

__device__ inline void store_list(const TopkSmem& smem, const TopkParams& p, int32_t row, int32_t segment, int32_t base,
                                  int32_t total) {
  const int64_t list = row * p.list_stride + int64_t{segment} * p.list_length;
  const float* values = p.scores != nullptr ? p.scores + row * p.pitch : p.in_values + row * p.in_stride;
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < p.list_length; first += kBatch * kTopkThreads) {
    float value[kBatch];
    int32_t position[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int32_t i = first + u * kTopkThreads;
      value[u] = __uint_as_float(kEmpty);
      position[u] = -1;
      if (i >= total) continue;
      const int32_t entry = base + smem.chosen[i];
      value[u] = values[entry];
      position[u] = position_at(p, row, entry);
      if (value[u] != value[u]) value[u] = __uint_as_float(kNan);
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int32_t i = first + u * kTopkThreads;
      if (i >= p.list_length) continue;
      p.out_values[list + i] = value[u];
      p.out_positions[list + i] = position[u];
    }
  }
}

template <int kKeys>
__global__ void __launch_bounds__(kTopkThreads, kKeys <= 16 ? 2 : 1) topk_level(const __grid_constant__ TopkParams p) {
  __shared__ TopkSmem smem;
  const int32_t row = static_cast<int32_t>(blockIdx.x / static_cast<uint32_t>(p.segments));
  const int32_t segment = static_cast<int32_t>(blockIdx.x % static_cast<uint32_t>(p.segments));
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Window w = window_of(p.sequences, p.first_token + row);
  const bool last = p.out_values == nullptr;
  if (w.count() <= p.topk) {  // nothing was scored, lists of this row are never read
    if (last) store_whole_window(p, row, w);
    return;
  }
  const int32_t base = segment * kKeys * kTopkThreads;
  if (p.scores != nullptr && !last && (base >= w.end || base + kKeys * kTopkThreads <= w.begin)) {
    store_list(smem, p, row, segment, base, 0);
    return;
  }
  smem.bins[threadIdx.x] = {};
  const auto total = static_cast<int32_t>(choose_from_segment<kKeys>(smem, p, row, w, base));
  if (last) {
    store_chosen(smem, p, row, base, total);
  } else {
    store_list(smem, p, row, segment, base, total);
  }
}

}  // namespace winnow::cuda::indexer
