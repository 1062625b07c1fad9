// SPDX-License-Identifier: Apache-2.0
// topk_level for 8, 16, 32 and 64 keys per thread.
#include "indexer/cuda/topk.cuh"

#include "indexer/cuda/instance.cuh"

namespace winnow::cuda::indexer {

Status launch_topk_level(const TopkParams& params, int32_t rows, int32_t keys_per_thread, cudaStream_t stream) {
  const auto ctas = static_cast<uint32_t>(int64_t{rows} * params.segments);
  switch (keys_per_thread) {
    case 8: topk_level<8><<<ctas, kTopkThreads, 0, stream>>>(params); break;
    case 16: topk_level<16><<<ctas, kTopkThreads, 0, stream>>>(params); break;
    case 32: topk_level<32><<<ctas, kTopkThreads, 0, stream>>>(params); break;
    default: topk_level<64><<<ctas, kTopkThreads, 0, stream>>>(params); break;
  }
  return launch_status("topk_level");
}

}  // namespace winnow::cuda::indexer
