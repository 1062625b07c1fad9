// SPDX-License-Identifier: Apache-2.0
// Device functions that kernels of more than one folder use. Device code only.
#pragma once

#include <cstdint>

namespace winnow::cuda {

// Programmatic dependent launch, SM90 and later: a launch may overlap the end of the kernel in front of it on the
// stream. A kernel that may have been launched so waits before it touches global memory; one that was not returns from
// the wait at once. Letting the next one start is a hint: without it that happens when this kernel ends.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// core/dtype.hpp's to_bf16, as bits.
__device__ __forceinline__ uint16_t bf16_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace winnow::cuda
