// SPDX-License-Identifier: Apache-2.0
// A CUDA call as a Status: WINNOW_CUDA_TRY(cudaMalloc(&p, n)) returns what failed, where, and what the driver calls it.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "core/status.hpp"

namespace winnow::kernels {

[[nodiscard]] inline Status cuda_status(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return {};
  const StatusCode kind = code == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::device_error;
  return error(kind, what, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

}  // namespace winnow::kernels

#define WINNOW_CUDA_TRY(call) WINNOW_TRY(::winnow::kernels::cuda_status((call), #call))
