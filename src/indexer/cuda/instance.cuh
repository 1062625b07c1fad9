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

[[nodiscard]] inline Status allow_shared(const void* kernel, const char* name, int64_t bytes) {
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (code == cudaSuccess) return {};
  return error(StatusCode::device_error, name, ": ", bytes, " bytes of shared memory: ", cudaGetErrorString(code));
}

}  // namespace winnow::cuda::indexer
