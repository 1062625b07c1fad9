// SPDX-License-Identifier: Apache-2.0
// Merge of partial attention results by LSE (contract/merge.hpp), sm_80 and up.
//   grid   tokens * q_heads / 8 CTAs
//   cta    8 warps, one (token, head) each; lanes run over d_v, parts are added in order: deterministic
//   bound  memory: parts * d_v * 4 bytes a head, read once
#include "backends/cuda/merge.hpp"

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/cache_write_admit.hpp"
#include "core/checked.hpp"
#include "core/cuda_device.cuh"
#include "core/cuda_status.hpp"

namespace winnow::cuda {
namespace {

constexpr int kWarps = MergeShape::kWarps;
constexpr int kSlice = 512;  // elements of d_v that a warp keeps in registers, 16 a lane

struct MergeParams {
  const float* part_out;
  int64_t part_stride, token_stride, head_stride;
  const float* part_lse;
  int64_t lse_part_stride, lse_token_stride, lse_head_stride;
  const float* sink;
  void* out;
  int64_t out_token_stride, out_head_stride;
  float* lse;
  int64_t lse_out_token_stride;
  int32_t parts, q_heads, d_v;
  int64_t rows;  // tokens * q_heads
  bool out_f32;
  bool vector;  // float4 loads of parts
};

__device__ float infinity() { return __uint_as_float(0x7F800000); }

__device__ void store(const MergeParams& p, int64_t index, float value) {
  if (p.out_f32) {
    static_cast<float*>(p.out)[index] = value;
  } else {
    static_cast<uint16_t*>(p.out)[index] = bf16_bits(value);
  }
}

// Element of the slice that register i of a lane holds: float4 pieces, or one at a time.
__device__ int element_of(const MergeParams& p, int i, int lane) {
  return p.vector ? (i / 4 * 32 + lane) * 4 + i % 4 : i * 32 + lane;
}

__device__ void add_part(float (&acc)[16], const MergeParams& p, const float* source, int32_t first, float weight,
                         int lane) {
  if (p.vector) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const int32_t d = first + element_of(p, i, lane);
      if (d >= p.d_v) continue;
      const float4 v = *reinterpret_cast<const float4*>(source + d);
      acc[i] = fmaf(weight, v.x, acc[i]);
      acc[i + 1] = fmaf(weight, v.y, acc[i + 1]);
      acc[i + 2] = fmaf(weight, v.z, acc[i + 2]);
      acc[i + 3] = fmaf(weight, v.w, acc[i + 3]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int32_t d = first + element_of(p, i, lane);
    if (d < p.d_v) acc[i] = fmaf(weight, source[d], acc[i]);
  }
}

__global__ void __launch_bounds__(kWarps * 32) merge_parts(const __grid_constant__ MergeParams p) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;  // warps never meet
  const int64_t token = row / p.q_heads, head = row % p.q_heads;
  const float* lse = p.part_lse + token * p.lse_token_stride + head * p.lse_head_stride;
  float top = -infinity();
  for (int32_t part = 0; part < p.parts; ++part) top = fmaxf(top, lse[part * p.lse_part_stride]);  // NaN passed over
  const bool empty = top == -infinity();
  float sum = 0;
  for (int32_t part = 0; part < p.parts && !empty; ++part) {
    const float value = lse[part * p.lse_part_stride];
    if (value != -infinity()) sum += expf(value - top);
  }
  const float total = empty ? -infinity() : top + logf(sum);
  float factor = empty ? 0.0f : 1.0f / sum;
  if (p.sink != nullptr && !empty) factor /= 1.0f + expf(p.sink[head] - total);  // +inf gives 0, -inf changes nothing
  if (p.lse != nullptr && lane == 0) p.lse[token * p.lse_out_token_stride + head] = total;

  const float* source = p.part_out + token * p.token_stride + head * p.head_stride;
  const int64_t target = token * p.out_token_stride + head * p.out_head_stride;
  for (int32_t first = 0; first < p.d_v; first += kSlice) {
    float acc[16] = {};
    for (int32_t part = 0; part < p.parts && !empty; ++part) {
      const float value = lse[part * p.lse_part_stride];
      if (value == -infinity()) continue;  // an empty part's out may be anything
      add_part(acc, p, source + part * p.part_stride, first, expf(value - top), lane);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int32_t d = first + element_of(p, i, lane);
      if (d < p.d_v) store(p, target + d, acc[i] * factor);
    }
  }
}

}  // namespace

Status run_merge(const MergeProblem& p, const MergeBuffers& b, const DeviceInfo&, const Execution& execution) {
  if (p.tokens == 0) return {};
  MergeParams m{};
  m.part_out = b.part_out.data;
  m.part_stride = b.part_out.stride(0);
  m.token_stride = b.part_out.stride(1);
  m.head_stride = b.part_out.stride(2);
  m.part_lse = b.part_lse.data;
  m.lse_part_stride = b.part_lse.stride(0);
  m.lse_token_stride = b.part_lse.stride(1);
  m.lse_head_stride = b.part_lse.stride(2);
  m.sink = b.sink.data;
  m.out = b.out.data;
  m.out_token_stride = b.out.token_stride;
  m.out_head_stride = b.out.head_stride;
  m.lse = b.lse.data;
  m.lse_out_token_stride = b.lse.empty() ? 0 : b.lse.stride(0);
  m.parts = p.parts;
  m.q_heads = p.q_heads;
  m.d_v = p.d_v;
  m.rows = int64_t{p.tokens} * p.q_heads;
  m.out_f32 = p.out_type == DType::f32;
  m.vector = reinterpret_cast<uintptr_t>(m.part_out) % 16 == 0 && m.part_stride % 4 == 0 && m.token_stride % 4 == 0 &&
             m.head_stride % 4 == 0 && p.d_v % 4 == 0;
  merge_parts<<<static_cast<uint32_t>(ceil_div(m.rows, int64_t{kWarps})), kWarps * 32, 0,
                static_cast<cudaStream_t>(execution.stream)>>>(m);
  return launch_status("merge_parts");
}

}  // namespace winnow::cuda
