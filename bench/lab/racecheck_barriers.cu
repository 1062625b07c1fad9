// SPDX-License-Identifier: Apache-2.0
// What compute-sanitizer's racecheck takes for a race, although __syncthreads orders the write and the read: two halves
// of a CTA that passed different numbers of named barriers before.
//
//   nvcc -arch=sm_90 -o racecheck_barriers bench/lab/racecheck_barriers.cu
//   compute-sanitizer --tool racecheck ./racecheck_barriers CTAS FIRST SECOND [register]
//       CTAS            300 or so: with one CTA the reports come and go
//       FIRST, SECOND   named barriers that the two halves pass, each its own
//       register        barrier numbers in a register instead of in the instruction; no difference
//
// H200, CUDA 13.0, 2026-11-29, 300 CTAs, the first half reads what both wrote. Measured with a longer program, in which
// 16 threads read four words of each warp; this one, the same barriers with less around them, has been compiled only.
//   0 0, 40 40      no report
//   3 0, 40 39      no report: who reads has passed more
//   0 3, 3 40       "Race reported between Write access and Read access": who wrote has passed more
// So the tool orders accesses by the number of barriers that a thread has passed, whichever they were. A CTA barrier of
// another number (bar.sync 3, 128) or one more CTA barrier before the write changes nothing; equal numbers do. That is
// why mla_kernel.cuh evens them out.
#include <cstdio>
#include <cstdlib>
#include <vector>

__device__ void meet(bool by_register, int half) {
  if (by_register)
    asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
  else if (half == 0)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
}

__global__ void halves(int first, int second, bool by_register, int* out) {
  __shared__ int words[128];
  const int half = threadIdx.x / 64;
  for (int i = 0; i < (half == 0 ? first : second); ++i) meet(by_register, half);
  words[threadIdx.x] = 7;
  __syncthreads();
  int value = 7;
  if (half == 0) value = words[threadIdx.x] + words[threadIdx.x + 64] - 7;
  out[blockIdx.x * 128 + threadIdx.x] = value;
}

int main(int argc, char** argv) {
  if (argc < 4) return std::printf("usage: racecheck_barriers CTAS FIRST SECOND [register]\n"), 2;
  const int ctas = std::atoi(argv[1]), first = std::atoi(argv[2]), second = std::atoi(argv[3]);
  int* out = nullptr;
  if (cudaMalloc(&out, ctas * 128 * sizeof(int)) != cudaSuccess) return 1;
  halves<<<ctas, 128>>>(first, second, argc > 4, out);
  std::vector<int> host(static_cast<size_t>(ctas) * 128);
  if (cudaMemcpy(host.data(), out, host.size() * sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  for (const int value : host) {
    if (value != 7) return std::printf("wrong value %d\n", value), 1;
  }
  std::printf("all threads read the values\n");
  return 0;
}
