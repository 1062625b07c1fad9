// SPDX-License-Identifier: Apache-2.0
// Launch and attribute setting of one score kernel over the compiled head tiles; included by the instance files.
#pragma once

#include "indexer/cuda/launch.hpp"

namespace winnow::cuda::indexer {

[[nodiscard]] inline Status launch_status(const char* kernel) {
  const cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess) return {};
  return error(StatusCode::device_error, kernel, ": launch failed: ", cudaGetErrorString(code));
}

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
  if (code == cudaSuccess) return {};
  (void)cudaGetLastError();
  return error(StatusCode::device_error, name, ": launch failed: ", cudaGetErrorString(code));
}

[[nodiscard]] inline Status allow_shared(const void* kernel, const char* name, int64_t bytes) {
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (code == cudaSuccess) return {};
  return error(StatusCode::device_error, name, ": ", bytes, " bytes of shared memory: ", cudaGetErrorString(code));
}

}  // namespace winnow::cuda::indexer
