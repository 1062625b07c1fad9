// SPDX-License-Identifier: Apache-2.0
// What this device can do, measured in the same run as the kernels that are compared with it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "core/status.hpp"

namespace winnow::kernels {

struct Ceilings {
  double copy_bytes_per_s = 0;  // large device-to-device copy, bytes read plus bytes written
  double mma_flops = 0;         // mma.sync m16n8k16 bf16 from registers: the portable kernels' own ceiling
  double matmul_flops = 0;      // 8192^3 bf16 product on random data through cuBLASLt; equals mma_flops without it
  std::string matmul_source;    // "cuBLASLt 13.1" or why mma.sync stands in
};

// About half a second of device time and 2.5 GB of device memory.
[[nodiscard]] Result<Ceilings> measure_ceilings(cudaStream_t stream);

// Pieces, for ceilings.cpp.
[[nodiscard]] Status launch_copy(const void* from, void* to, int64_t bytes, cudaStream_t stream);  // multiple of 64 KB
[[nodiscard]] Result<double> measure_mma_sync(cudaStream_t stream);                                // FLOP/s
[[nodiscard]] Result<double> measure_cublaslt(cudaStream_t stream, std::string& source);

}  // namespace winnow::kernels
