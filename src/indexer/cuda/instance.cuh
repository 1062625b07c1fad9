// SPDX-License-Identifier: Apache-2.0
// How a compiled kernel is launched and its attribute set; for the files that compile one.
#pragma once

#include "core/cuda_status.hpp"
#include "indexer/cuda/launch.hpp"

namespace winnow::cuda::indexer {

// A score kernel compiled for each count of head tiles that head_tiles() names.
using ScoreKernel = void (*)(ScoreParams);
inline constexpr int kCompiledTiles[] = {1, 2, 4, 8};

// Launches a kernel of the top-k. `overlapped`: its launch may overlap the end of the kernel before it on the stream,
// which the kernel itself waits for.
template <class Params>
[[nodiscard]] inline Status launch_overlapped(void (*kernel)(Params), const char* name, const Params& params,
                                              int64_t ctas, bool overlapped, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<uint32_t>(ctas));
  config.blockDim = dim3(kTopkThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlapped ? 1 : 0;
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, params);
  if (code != cudaSuccess) (void)cudaGetLastError();
  return cuda_status(code, "launch failed").in(name);
}

[[nodiscard]] inline Status allow_shared(ScoreKernel kernel, const char* name, int64_t bytes) {
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  return cuda_status(code, concat(bytes, " bytes of shared memory")).in(name);
}

}  // namespace winnow::cuda::indexer
