// SPDX-License-Identifier: Apache-2.0
// A CUDA call as a Status: WINNOW_CUDA_TRY(cudaMalloc(&p, n)) returns what failed, where, and what the driver calls it.
// Needs the CUDA toolkit; the rest of core does not, so only sources of the CUDA library and its program include this.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "core/status.hpp"

namespace winnow {

[[nodiscard]] inline Status cuda_status(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return {};
  const StatusCode kind = code == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::device_error;
  return error(kind, what, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

// Of the launch that has just been made with <<<>>>. The text is put together only when it failed.
[[nodiscard]] inline Status launch_status(std::string_view kernel) {
  return cuda_status(cudaGetLastError(), "launch failed").in(kernel);
}

}  // namespace winnow

#define WINNOW_CUDA_TRY(call) WINNOW_TRY(::winnow::cuda_status((call), #call))
