// SPDX-License-Identifier: Apache-2.0
// Random data made on the device: benchmark pools of hundreds of megabytes never pass through the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/status.hpp"

namespace winnow::kernels {

// Roughly normal values of the given standard deviation, bf16.
[[nodiscard]] Status fill_normal_bf16(void* data, int64_t elements, float deviation, uint64_t seed,
                                      cudaStream_t stream);
[[nodiscard]] Status fill_normal_f32(float* data, int64_t elements, float deviation, uint64_t seed,
                                     cudaStream_t stream);
// Finite e4m3 bytes that decode to roughly normal values of deviation ~ 100.
[[nodiscard]] Status fill_e4m3(void* data, int64_t elements, uint64_t seed, cudaStream_t stream);
// v32_fp8 rows of 512 + d_rope, row_stride_bytes apart: random codes, scales around 0.01 that are no powers of two.
[[nodiscard]] Status fill_v32_fp8_rows(void* data, int64_t rows, int64_t row_stride_bytes, int d_rope, uint64_t seed,
                                       cudaStream_t stream);
// fp8 index key pages: planar keys, then one scale per key.
[[nodiscard]] Status fill_fp8_key_pages(void* data, int64_t pages, int page_size, int index_dim,
                                        int64_t page_stride_bytes, uint64_t seed, cudaStream_t stream);

}  // namespace winnow::kernels
