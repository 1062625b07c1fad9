// SPDX-License-Identifier: Apache-2.0
// Counter-based generators: value i depends on (seed, i) alone, so that any grid writes the same data.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "core/cuda_status.hpp"
#include "kernels/fill.hpp"

namespace winnow::kernels {
namespace {

constexpr int kThreads = 256;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): 64 well-mixed bits from a counter.
__device__ uint64_t mix(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Sum of four uniforms, centred and scaled to unit variance: near enough to normal for timing and power.
__device__ float normal(uint64_t seed, uint64_t i) {
  const uint64_t bits = mix(seed, i);
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<float>((bits >> (16 * part)) & 0xFFFF);
  return (sum * (1.0f / 65536.0f) - 2.0f) * 1.7320508f;
}

__device__ uint8_t e4m3_code(uint64_t seed, uint64_t i) { return __nv_fp8_e4m3(100.0f * normal(seed, i)).__x; }

__device__ float scale_value(uint64_t seed, uint64_t i) {
  return 0.007f + 0.006f * (static_cast<float>(mix(seed, i) >> 40) * 0x1p-24f);
}

__device__ int64_t first_item() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ int64_t item_stride() { return static_cast<int64_t>(gridDim.x) * kThreads; }

__global__ void __launch_bounds__(kThreads)
    normal_bf16(__nv_bfloat16* data, int64_t n, float deviation, uint64_t seed) {
  for (int64_t i = first_item(); i < n; i += item_stride()) data[i] = __float2bfloat16(deviation * normal(seed, i));
}

__global__ void __launch_bounds__(kThreads) normal_f32(float* data, int64_t n, float deviation, uint64_t seed) {
  for (int64_t i = first_item(); i < n; i += item_stride()) data[i] = deviation * normal(seed, i);
}

__global__ void __launch_bounds__(kThreads) codes_e4m3(uint8_t* data, int64_t n, uint64_t seed) {
  for (int64_t i = first_item(); i < n; i += item_stride()) data[i] = e4m3_code(seed, i);
}

__global__ void __launch_bounds__(kThreads)
    rows_v32_fp8(uint8_t* data, int64_t rows, int64_t stride, int d_rope, uint64_t seed) {
  const int per_row = 512 + 4 + d_rope;
  for (int64_t i = first_item(); i < rows * per_row; i += item_stride()) {
    const int64_t row = i / per_row;
    const int part = static_cast<int>(i % per_row);
    uint8_t* base = data + row * stride;
    if (part < 512) {
      base[part] = e4m3_code(seed, i);
    } else if (part < 516) {
      reinterpret_cast<float*>(base + 512)[part - 512] = scale_value(seed, i);
    } else {
      reinterpret_cast<__nv_bfloat16*>(base + 528)[part - 516] = __float2bfloat16(normal(seed, i));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    key_pages_fp8(uint8_t* data, int64_t pages, int page_size, int dim, int64_t stride, uint64_t seed) {
  const int64_t per_page = static_cast<int64_t>(page_size) * (dim + 1);
  for (int64_t i = first_item(); i < pages * per_page; i += item_stride()) {
    uint8_t* base = data + i / per_page * stride;
    const int64_t part = i % per_page;
    const int64_t codes = static_cast<int64_t>(page_size) * dim;
    if (part < codes) {
      base[part] = e4m3_code(seed, i);
    } else {
      reinterpret_cast<float*>(base + codes)[part - codes] = scale_value(seed, i);
    }
  }
}

int blocks_for(int64_t items) {
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks);
}

}  // namespace

Status fill_normal_bf16(void* data, int64_t elements, float deviation, uint64_t seed, cudaStream_t stream) {
  normal_bf16<<<blocks_for(elements), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(data), elements, deviation,
                                                             seed);
  return cuda_status(cudaGetLastError(), "fill normal_bf16");
}

Status fill_normal_f32(float* data, int64_t elements, float deviation, uint64_t seed, cudaStream_t stream) {
  normal_f32<<<blocks_for(elements), kThreads, 0, stream>>>(data, elements, deviation, seed);
  return cuda_status(cudaGetLastError(), "fill normal_f32");
}

Status fill_e4m3(void* data, int64_t elements, uint64_t seed, cudaStream_t stream) {
  codes_e4m3<<<blocks_for(elements), kThreads, 0, stream>>>(static_cast<uint8_t*>(data), elements, seed);
  return cuda_status(cudaGetLastError(), "fill codes_e4m3");
}

Status fill_v32_fp8_rows(void* data, int64_t rows, int64_t row_stride_bytes, int d_rope, uint64_t seed,
                         cudaStream_t stream) {
  rows_v32_fp8<<<blocks_for(rows * 580), kThreads, 0, stream>>>(static_cast<uint8_t*>(data), rows, row_stride_bytes,
                                                                d_rope, seed);
  return cuda_status(cudaGetLastError(), "fill rows_v32_fp8");
}

Status fill_fp8_key_pages(void* data, int64_t pages, int page_size, int index_dim, int64_t page_stride_bytes,
                          uint64_t seed, cudaStream_t stream) {
  key_pages_fp8<<<blocks_for(pages * page_size * index_dim), kThreads, 0, stream>>>(
      static_cast<uint8_t*>(data), pages, page_size, index_dim, page_stride_bytes, seed);
  return cuda_status(cudaGetLastError(), "fill key_pages_fp8");
}

}  // namespace winnow::kernels
