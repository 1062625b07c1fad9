// SPDX-License-Identifier: Apache-2.0
// What compute-sanitizer's racecheck says about one write, __syncthreads, one read, after two halves of a CTA passed
// different numbers of named barriers. There is no race: __syncthreads orders the two accesses. Racecheck of CUDA 13.0
// reports one all the same when `extra` is such that both halves have counted equally many barriers at the accesses.
//
//   nvcc -arch=sm_80 -o racecheck_barriers bench/lab/racecheck_barriers.cu
//   compute-sanitizer --tool racecheck ./racecheck_barriers EXTRA     EXTRA = 0, 1, 2 ... barriers more in one half
#include <cstdio>
#include <cstdlib>

__global__ void halves(int extra, int* out) {
  __shared__ int word;
  const int half = threadIdx.x / 64;
  if (half == 1) {
    for (int i = 0; i < extra; ++i) asm volatile("bar.sync 2, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
  }
  if (threadIdx.x == 0) word = 7;
  __syncthreads();
  out[threadIdx.x] = word;
}

int main(int argc, char** argv) {
  int* out = nullptr;
  if (cudaMalloc(&out, 128 * sizeof(int)) != cudaSuccess) return 1;
  halves<<<1, 128>>>(argc > 1 ? std::atoi(argv[1]) : 0, out);
  int host[128];
  if (cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (int value : host) {
    if (value != 7) return std::printf("wrong value %d\n", value), 1;
  }
  std::printf("all threads read the value\n");
  return 0;
}
