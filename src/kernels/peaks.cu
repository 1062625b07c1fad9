// SPDX-License-Identifier: Apache-2.0
// Two ceilings: a streaming copy, and the rate of mma.sync m16n8k16 (bf16 in, fp32 out) from registers alone: the most
// that a portable kernel can reach.
//   grid   2 CTAs per SM    cta  8 warps    each warp: 8 independent accumulator tiles, operands that vary by lane
#include <cuda_runtime.h>

#include "core/cuda_status.hpp"
#include "kernels/ceilings.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/timing.hpp"

namespace winnow::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTiles = 8;
constexpr int kSteps = 4096;

__device__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A bf16 pair whose values are in [1, 2) or [-2, -1): random mantissas and signs, no overflow over kSteps products.
__device__ uint32_t random_pair(uint32_t i) {
  uint32_t x = i * 2654435761u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return 0x3F803F80u | (x & 0x807F807Fu);
}

__global__ void __launch_bounds__(kThreads) mma_peak(float* sink, int steps) {
  float c[kTiles][4] = {};
  uint32_t a[4], b[kTiles][2];
  const uint32_t id = (blockIdx.x * kThreads + threadIdx.x) * 32;
  for (int i = 0; i < 4; ++i) a[i] = random_pair(id + i);
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int i = 0; i < 2; ++i) b[tile][i] = random_pair(id + 4 + 2 * tile + i);
  }
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) mma(c[tile], a, b[tile]);
  }
  float sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) sum += c[tile][0] + c[tile][1] + c[tile][2] + c[tile][3];
  sink[blockIdx.x * kThreads + threadIdx.x] = sum;  // keeps the products alive
}

// grid  one CTA per 64 KB    cta  256 threads, 16 loads of 16 bytes in flight each
constexpr int kCopyWords = 16;
__global__ void __launch_bounds__(kThreads) copy_peak(const uint4* from, uint4* to) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kCopyWords + threadIdx.x;
  uint4 words[kCopyWords];
#pragma unroll
  for (int i = 0; i < kCopyWords; ++i) words[i] = __ldcs(from + first + i * kThreads);
#pragma unroll
  for (int i = 0; i < kCopyWords; ++i) __stcs(to + first + i * kThreads, words[i]);
}

}  // namespace

Status launch_copy(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  const auto ctas = static_cast<uint32_t>(bytes / (kThreads * kCopyWords * static_cast<int64_t>(sizeof(uint4))));
  copy_peak<<<ctas, kThreads, 0, stream>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to));
  return cuda_status(cudaGetLastError(), "copy_peak");
}

Result<double> measure_mma_sync(cudaStream_t stream) {
  int device = 0, sms = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  WINNOW_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  const int ctas = 2 * sms;
  WINNOW_TRY_ASSIGN(const DeviceBuffer sink, DeviceBuffer::allocate("mma sink", int64_t{4} * ctas * kThreads));
  const TimingPlan plan{.launches = 4, .repeats = 15};
  WINNOW_TRY_ASSIGN(const Timing timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      mma_peak<<<ctas, kThreads, 0, s>>>(sink.as<float>(), kSteps);
                      return cuda_status(cudaGetLastError(), "mma_peak");
                    }));
  const double flop = 2.0 * 16 * 8 * 16 * kTiles * kSteps * (kThreads / 32) * ctas;
  return flop / (timing.median_us * 1e-6);
}

}  // namespace winnow::kernels
