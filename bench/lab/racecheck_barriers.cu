// SPDX-License-Identifier: Apache-2.0
// Does compute-sanitizer's racecheck see a race where __syncthreads orders a write and a read, because two halves of
// the CTA passed different numbers of named barriers before? It reports one in mla_bf16_h16 and mla_fp8_h16, where
// machine code shows a BAR.SYNC of the whole CTA between the two accesses it names.
//
//   nvcc -arch=sm_80 -o racecheck_barriers bench/lab/racecheck_barriers.cu
//   compute-sanitizer --tool racecheck ./racecheck_barriers EXTRA [register]
//       EXTRA      0, 1, 2 ... barriers more in one half
//       register   barrier numbers in a register, as those kernels have them, instead of in the instruction
//
// H200, CUDA 13.0, 2026-11-29: no report with numbers in the instruction and EXTRA 0, 1 or 2. With numbers in a
// register: not run yet.
#include <cstdio>
#include <cstdlib>

__device__ void meet(bool by_register, int half) {
  if (by_register)
    asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
  else if (half == 0)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
}

__global__ void halves(int extra, bool by_register, int* out) {
  __shared__ int word;
  const int half = threadIdx.x / 64;
  for (int i = 0; i < (half == 0 ? 1 : extra); ++i) meet(by_register, half);
  if (threadIdx.x == 0) word = 7;
  __syncthreads();
  out[threadIdx.x] = word;
}

int main(int argc, char** argv) {
  int* out = nullptr;
  if (cudaMalloc(&out, 128 * sizeof(int)) != cudaSuccess) return 1;
  halves<<<1, 128>>>(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2, out);
  int host[128];
  if (cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int value : host) {
    if (value != 7) return std::printf("wrong value %d\n", value), 1;
  }
  std::printf("all threads read the value\n");
  return 0;
}
