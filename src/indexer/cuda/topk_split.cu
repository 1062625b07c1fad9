// SPDX-License-Identifier: Apache-2.0
// topk_filter for 8 and 16 keys per thread, and topk_finish.
#include "indexer/cuda/topk_split.cuh"

#include "indexer/cuda/instance.cuh"

namespace winnow::cuda::indexer {
static_assert(kMaxSplitSegments == kSplitSegments && kMaxSplitBlocks == kSplitBlocks && kCandidates == kSplitEntries);

Status launch_topk_split(const SplitParams& params, int32_t rows, int32_t keys_per_thread, bool overlapped,
                         bool can_overlap, cudaStream_t stream) {
  WINNOW_TRY(launch_overlapped(keys_per_thread == 8 ? topk_filter<8> : topk_filter<16>, "topk_filter", params,
                               int64_t{rows} * params.segment_count(), overlapped, stream));
  return launch_overlapped(topk_finish, "topk_finish", params, rows, can_overlap, stream);
}

}  // namespace winnow::cuda::indexer
