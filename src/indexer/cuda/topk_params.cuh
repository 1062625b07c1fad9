// SPDX-License-Identifier: Apache-2.0
// Parameters of the top-k kernels.
#pragma once

#include "indexer/cuda/device.cuh"

namespace winnow::cuda::indexer {

struct TopkParams {
  Sequences sequences;
  // Input of the first level: scores, column = position. Later levels: lists of (value, position).
  const float* scores;  // null on later levels
  int64_t pitch;
  bool vector;  // 16-byte loads of scores
  const float* in_values;
  const int32_t* in_positions;
  int64_t in_stride;          // entries from one row to the next
  int32_t entries;            // of a row that this level reads
  int32_t segments;           // CTAs per row
  int32_t topk, list_length;  // list_length: topk rounded up to kListAlign
  // Output of every level but the last; null on the last.
  float* out_values;
  int32_t* out_positions;
  int64_t list_stride;
  // Output of the last level.
  int32_t* out;
  int64_t out_stride;
  int32_t* out_len;  // may be null
  bool output_slots;
  int32_t first_token;  // token of row 0
};

// Two launches for long rows, see topk_split.cuh.
struct SplitParams {
  // The whole row: scores, window, output, lists for the slow way; then the choice among those lists; then the output
  // of entries of the survivors' lists. Made on the host: a copy changed in the kernel costs registers.
  TopkParams row[3];
  FastDivisor segments;  // of the filter, at most kMaxSplitSegments
  int32_t blocks;        // blocks of a segment
  int32_t rank;          // a segment keeps this many values and a few more
  FastDivisor capacity;  // entries of a segment's list
  uint8_t* survivors;    // rows of split_row_bytes
  int64_t survivors_stride;
  __host__ __device__ int32_t segment_count() const { return static_cast<int32_t>(segments.divisor); }
  __host__ __device__ int32_t list_capacity() const { return static_cast<int32_t>(capacity.divisor); }
};

}  // namespace winnow::cuda::indexer
