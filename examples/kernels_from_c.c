/* SPDX-License-Identifier: Apache-2.0 */
/* Winnow's CUDA kernels from plain C: sparse MLA of two tokens over a small bf16 cache.
 *
 *   make kernels && build-cuda/bin/kernels_from_c
 *
 * Every cached row is filled with one value, and the values differ from row to row. All scores of a token are made
 * equal by a zero query, so attention is a plain mean of the listed rows: easy to check by hand. The second token lists
 * nothing, and its result is defined too: zeros, and an lse of minus infinity. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "winnow/winnow.h"

enum { kTokens = 2, kHeads = 8, kTopk = 4, kPageSize = 64, kPages = 2, kNope = 512, kRope = 64 };
enum { kRow = kNope + kRope, kSlots = kPages * kPageSize };

static void need(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "kernels_from_c: %s: %s\n", what, winnow_last_error());
  exit(1);
}

static uint16_t to_bf16(float x) { /* values here are short enough to be exact */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void* to_device(const void* host, size_t bytes) {
  void* device = NULL;
  need(cudaMalloc(&device, bytes) == cudaSuccess, "cudaMalloc");
  if (host != NULL) need(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "cudaMemcpy");
  return device;
}

static winnow_mla_problem problem_of_example(void) {
  winnow_mla_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.tokens = kTokens;
  problem.q_heads = kHeads;
  problem.topk = kTopk;
  problem.page_size = kPageSize;
  problem.d_nope = kNope;
  problem.d_rope = kRope;
  problem.d_v = kNope;
  problem.softmax_scale = 1.0f;
  problem.rows = WINNOW_ROWS_BF16;
  problem.activations = WINNOW_BF16;
  return problem;
}

/* Row s holds the value s, everywhere. */
static void* cache_of_example(void) {
  static uint16_t rows[kSlots * kRow];
  int i;
  for (i = 0; i < kSlots * kRow; ++i) rows[i] = to_bf16((float)(i / kRow));
  return to_device(rows, sizeof rows);
}

int main(void) {
  static uint16_t q[kTokens * kHeads * kRow]; /* zero */
  static uint16_t out[kTokens * kHeads * kNope];
  static float lse[kTokens * kHeads];
  const int32_t slots[kTokens * kTopk] = {10, -1, 20, 30, -1, -1, -1, -1};
  const winnow_mla_problem problem = problem_of_example();
  winnow_mla_buffers buffers;
  winnow_execution execution;
  winnow_device_info device;
  int devices = 0;

  printf("winnow %s\n", winnow_version());
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    printf("SKIPPED: no CUDA device on this machine\n");
    return 0;
  }
  memset(&device, 0, sizeof device);
  device.struct_size = sizeof device;
  need(winnow_init_device(0, &device) == WINNOW_OK, "winnow_init_device");
  printf("device %s, sm_%d\n", device.name, (int)device.sm);

  memset(&buffers, 0, sizeof buffers);
  buffers.struct_size = sizeof buffers;
  buffers.q.data = to_device(q, sizeof q);
  buffers.q.token_stride = kHeads * kRow;
  buffers.q.head_stride = kRow;
  buffers.cache.data = cache_of_example();
  buffers.cache.pages = kPages;
  buffers.cache.row_stride_bytes = 2 * kRow;
  buffers.cache.page_stride_bytes = 2 * kRow * kPageSize;
  buffers.topk_slots = (const int32_t*)to_device(slots, sizeof slots);
  buffers.topk_slots_stride = kTopk;
  buffers.out.data = to_device(NULL, sizeof out);
  buffers.out.token_stride = kHeads * kNope;
  buffers.out.head_stride = kNope;
  buffers.lse = (float*)to_device(NULL, sizeof lse);
  buffers.lse_stride = kHeads;

  memset(&execution, 0, sizeof execution);
  execution.struct_size = sizeof execution;
  need(winnow_sparse_mla_workspace(&problem, &execution.workspace_bytes) == WINNOW_OK, "workspace");
  if (execution.workspace_bytes > 0) execution.workspace = to_device(NULL, (size_t)execution.workspace_bytes);

  need(winnow_sparse_mla(&problem, &buffers, &execution) == WINNOW_OK, "winnow_sparse_mla");
  need(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  need(cudaMemcpy(out, buffers.out.data, sizeof out, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
  need(cudaMemcpy(lse, buffers.lse, sizeof lse, cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");

  printf("token 0: out %g (mean of rows 10, 20, 30), lse %g (ln 3)\n", from_bf16(out[0]), lse[0]);
  printf("token 1: out %g, lse %g (no slot listed)\n", from_bf16(out[kHeads * kNope]), lse[kHeads]);
  need(from_bf16(out[0]) == 20.0f && fabsf(lse[0] - logf(3.0f)) < 1e-5f, "token 0 is wrong");
  need(from_bf16(out[kHeads * kNope]) == 0.0f && isinf(lse[kHeads]) && lse[kHeads] < 0, "token 1 is wrong");
  return 0;
}
