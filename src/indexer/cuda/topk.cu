// SPDX-License-Identifier: Apache-2.0
// topk_level for 8, 16, 32 and 64 keys per thread.
#include "indexer/cuda/topk.cuh"

#include "indexer/cuda/instance.cuh"

namespace winnow::cuda::indexer {

Status launch_topk_level(const TopkParams& params, int32_t rows, int32_t keys_per_thread, bool overlapped,
                         cudaStream_t stream) {
  const int64_t ctas = int64_t{rows} * params.segments;
  const auto launch = [&](void (*kernel)(TopkParams)) {
    return launch_overlapped(kernel, "topk_level", params, ctas, overlapped, stream);
  };
  switch (keys_per_thread) {
    case 8: return launch(topk_level<8>);
    case 16: return launch(topk_level<16>);
    case 32: return launch(topk_level<32>);
    default: return launch(topk_level<64>);
  }
}

// Code for sm_90 and up waits for the kernel before it; what was compiled for less does not know how.
bool topk_can_overlap() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, topk_level<8>) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= 90;
}

}  // namespace winnow::cuda::indexer
