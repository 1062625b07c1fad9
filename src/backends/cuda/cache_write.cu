// SPDX-License-Identifier: Apache-2.0
// Cache writer and row gather, sm_80 and up.
//   grid   one CTA of 8 warps per token (writer) or row (gather)
//   cta    a warp takes 128 elements at a time, four neighbours a lane: latent groups, then rope, then the index key
//   bound  memory; a step of decode is a few kilobytes and costs a launch
// Bytes equal contract/quantise.hpp on every architecture: IEEE division, and e4m3 rounded here in integers because the
// conversion instruction (sm_89 and up) drops the sign of NaN.
#include "backends/cuda/cache_write.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "backends/cuda/cache_write_admit.hpp"
#include "contract/quantise.hpp"
#include "core/cuda_device.cuh"
#include "core/cuda_status.hpp"

namespace winnow::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = WriteShape::kThreads / kLanes;
constexpr int kUnit = 128;  // elements of a warp at a time; also latents of one scale
static_assert(kUnit == kLatentsPerScale);

// [tokens, width] of f32 or bf16.
struct Source {
  const void* data;
  int64_t stride;
  int32_t width;
  bool f32;
  bool vector;  // four neighbours load at once
};

struct PagedTarget {
  uint8_t* data;
  int64_t page_stride, row_stride;  // bytes; row_stride unused by keys
  bool vector;                      // four bf16 store at once
};

struct WriteParams {
  Source latent, rope, key;  // key.width 0: none
  const int32_t* slots;
  int32_t first_token, last_token;  // of this launch
  int32_t page_size;
  int64_t slots_end;  // pages * page_size
  PagedTarget rows, keys;
  bool rows_fp8, keys_fp8, power_of_two;
  int64_t scales_offset, rope_offset;  // bytes inside a row
};

__device__ void load_four(float (&x)[4], const Source& s, int64_t token, int32_t first) {
  const int64_t index = token * s.stride + first;
  if (s.vector && first + 4 <= s.width) {
    if (s.f32) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(s.data) + index);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(s.data) + index);
      x[0] = __uint_as_float(v.x << 16), x[1] = __uint_as_float(v.x & 0xFFFF0000u);
      x[2] = __uint_as_float(v.y << 16), x[3] = __uint_as_float(v.y & 0xFFFF0000u);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = 0;
    if (first + i >= s.width) continue;
    x[i] = s.f32 ? static_cast<const float*>(s.data)[index + i]
                 : __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(s.data)[index + i]) << 16);
  }
}

// core/dtype.hpp's to_e4m3 of x / scale.
__device__ uint8_t e4m3_bits(float x, float scale) {
  const auto sign = static_cast<uint8_t>(__float_as_uint(x) >> 24 & 0x80);
  if (x != x) return sign | 0x7F;
  const float magnitude = __fdiv_rn(fabsf(x), scale);
  if (magnitude >= kLargestE4m3) return sign | 0x7E;
  uint32_t bits = __float_as_uint(magnitude);
  if (magnitude < 0x1p-6f) {  // subnormal codes count 2^-9: adding 2^14 leaves the rounded count in the fraction
    return sign | static_cast<uint8_t>(__float_as_uint(__fadd_rn(magnitude, 0x1p14f)) - __float_as_uint(0x1p14f));
  }
  bits += 0x7FFFFu + ((bits >> 20) & 1u);
  return sign | static_cast<uint8_t>((bits >> 20) - (120u << 3));
}

__device__ void store_bf16(uint8_t* target, const float (&x)[4], int32_t first, int32_t width, bool vector) {
  auto* out = reinterpret_cast<uint16_t*>(target) + first;
  if (vector && first + 4 <= width) {
    *reinterpret_cast<uint2*>(out) = {bf16_bits(x[0]) | static_cast<uint32_t>(bf16_bits(x[1])) << 16,
                                      bf16_bits(x[2]) | static_cast<uint32_t>(bf16_bits(x[3])) << 16};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i < width) out[i] = bf16_bits(x[i]);
  }
}

__device__ void store_e4m3(uint8_t* target, const float (&x)[4], int32_t first, int32_t width, float scale) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(e4m3_bits(x[i], scale)) << (8 * i);
  if (first + 4 <= width && reinterpret_cast<uintptr_t>(target + first) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(target + first) = word;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i < width) target[first + i] = static_cast<uint8_t>(word >> (8 * i));
  }
}

__device__ float widen_four(float amax, const float (&x)[4]) {
  constexpr float kLargest = 3.402823466e38f;
#pragma unroll
  for (int i = 0; i < 4; ++i) amax = fmaxf(amax, fminf(fabsf(x[i]), kLargest));  // see below for NaN
  return amax;
}

// contract/quantise.hpp's group_scale, with divisions that are IEEE on the device too.
__device__ float scale_of(float amax, bool power_of_two, bool key) {
  float scale = __fdiv_rn(key ? fmaxf(amax, 1e-4f) : amax, kLargestE4m3);
  if (!key) scale = fmaxf(scale, power_of_two ? 1e-4f : 1.17549435e-38f);
  if (!power_of_two) return scale;
  return __uint_as_float((__float_as_uint(scale) + 0x007FFFFFu) & 0x7F800000u);
}

// Largest finite magnitude over [first, last) of a token's row; NaN ignored, infinity counts as the largest float.
__device__ float group_amax(const Source& s, int64_t token, int32_t first, int32_t last, int lane) {
  float amax = 0;
  for (int32_t d = first; d < last; d += kUnit) {
    float x[4];
    load_four(x, s, token, d + 4 * lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (x[i] != x[i] || d + 4 * lane + i >= last) x[i] = 0;
    }
    amax = widen_four(amax, x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, step));
  return amax;
}

// Elements [first, first + 128) of a source to bf16, at `target`.
__device__ void copy_unit(const Source& s, int64_t token, int32_t first, uint8_t* target, bool vector, int lane) {
  float x[4];
  load_four(x, s, token, first + 4 * lane);
  store_bf16(target, x, first + 4 * lane, s.width, vector);
}

__device__ void write_latent(const WriteParams& p, int64_t token, int32_t unit, uint8_t* row, int lane) {
  const int32_t first = unit * kUnit;
  if (!p.rows_fp8) return copy_unit(p.latent, token, first, row, p.rows.vector, lane);
  const int32_t last = min(first + kUnit, p.latent.width);
  const float scale = scale_of(group_amax(p.latent, token, first, last, lane), p.power_of_two, false);
  float x[4];
  load_four(x, p.latent, token, first + 4 * lane);
  store_e4m3(row, x, first + 4 * lane, p.latent.width, scale);
  if (lane == 0) *reinterpret_cast<float*>(row + p.scales_offset + unit * 4) = scale;
}

__device__ void write_key(const WriteParams& p, int64_t token, int64_t page, int32_t offset, int lane) {
  uint8_t* base = p.keys.data + page * p.keys.page_stride;
  const int32_t width = p.key.width;
  if (!p.keys_fp8) {
    uint8_t* target = base + int64_t{offset} * width * 2;
    for (int32_t d = 0; d < width; d += kUnit) copy_unit(p.key, token, d, target, p.keys.vector, lane);
    return;
  }
  const float scale = scale_of(group_amax(p.key, token, 0, width, lane), p.power_of_two, true);
  for (int32_t d = 0; d < width; d += kUnit) {
    float x[4];
    load_four(x, p.key, token, d + 4 * lane);
    store_e4m3(base + int64_t{offset} * width, x, d + 4 * lane, width, scale);
  }
  if (lane == 0) *reinterpret_cast<float*>(base + int64_t{p.page_size} * width + int64_t{offset} * 4) = scale;
}

__global__ void __launch_bounds__(WriteShape::kThreads) cache_write(const __grid_constant__ WriteParams p) {
  const int32_t token = p.first_token + static_cast<int32_t>(blockIdx.x);
  const int32_t slot = p.slots[token];
  if (slot < 0 || slot >= p.slots_end) return;  // the whole CTA agrees
  int later = 0;
  for (int32_t t = token + 1 + static_cast<int32_t>(threadIdx.x); t < p.last_token; t += WriteShape::kThreads) {
    later |= p.slots[t] == slot;
  }
  if (__syncthreads_or(later) != 0) return;  // a later token stores that slot

  const int lane = static_cast<int>(threadIdx.x % kLanes), warp = static_cast<int>(threadIdx.x / kLanes);
  const int32_t page = slot / p.page_size, offset = slot % p.page_size;
  uint8_t* row = p.rows.data + page * p.rows.page_stride + offset * p.rows.row_stride;
  const int32_t latent_units = (p.latent.width + kUnit - 1) / kUnit, rope_units = (p.rope.width + kUnit - 1) / kUnit;
  const int32_t units = latent_units + rope_units + (p.key.width > 0 ? 1 : 0);
  for (int32_t unit = warp; unit < units; unit += kWarps) {
    if (unit < latent_units) {
      write_latent(p, token, unit, row, lane);
    } else if (unit < latent_units + rope_units) {
      copy_unit(p.rope, token, (unit - latent_units) * kUnit, row + p.rope_offset, p.rows.vector, lane);
    } else {
      write_key(p, token, page, offset, lane);
    }
  }
}

struct GatherParams {
  const uint8_t* data;
  int64_t page_stride, row_stride, slots_end;
  const int32_t* slots;
  float* out;
  int64_t out_stride;
  int32_t page_size, d_nope, d_rope;
  bool fp8;
  int64_t scales_offset, rope_offset;
};

__device__ float bf16_value(const uint8_t* base, int32_t index) {
  return __uint_as_float(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(base)[index]) << 16);
}

__device__ float e4m3_value(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return __uint_as_float(0x7FC00000);
  // Magnitude bits as a bf16 are the value times 2^-120; both factors are normal floats or exact subnormals.
  const float magnitude = __uint_as_float(static_cast<uint32_t>(code & 0x7F) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

__global__ void __launch_bounds__(WriteShape::kThreads) row_gather(const __grid_constant__ GatherParams p) {
  const int32_t slot = p.slots[blockIdx.x];
  const bool valid = slot >= 0 && slot < p.slots_end;
  const uint8_t* row = p.data;
  if (valid) row += (slot / p.page_size) * p.page_stride + (slot % p.page_size) * p.row_stride;
  float* out = p.out + blockIdx.x * p.out_stride;
#pragma unroll 1  // unrolled, ptxas spills on sm_80 to keep 32 registers
  for (int32_t d = static_cast<int32_t>(threadIdx.x); d < p.d_nope + p.d_rope; d += WriteShape::kThreads) {
    float value = 0;
    if (valid && d >= p.d_nope) {
      value = bf16_value(row + p.rope_offset, d - p.d_nope);
    } else if (valid && p.fp8) {
      const float scale = reinterpret_cast<const float*>(row + p.scales_offset)[d / kLatentsPerScale];
      value = __fmul_rn(e4m3_value(row[d]), scale);
    } else if (valid) {
      value = bf16_value(row, d);
    }
    out[d] = value;
  }
}

bool aligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

Source source_of(const void* data, int64_t stride, int32_t width, DType type) {
  const int64_t bytes = 4 * bytes_of(type);
  return {data, stride, width, type == DType::f32, aligned(data, bytes) && stride % 4 == 0};
}

WriteParams write_params(const CacheWriteProblem& p, const CacheWriteBuffers& b) {
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  WriteParams w{};
  w.latent = source_of(b.latent, b.latent_stride, p.d_nope, p.activations);
  w.rope = source_of(b.rope, b.rope_stride, p.d_rope, p.activations);
  w.key = source_of(b.key, b.key_stride, p.index_dim, p.activations);
  w.slots = b.slots.data;
  w.page_size = p.page_size;
  w.slots_end = b.cache.pages * p.page_size;
  w.rows = {reinterpret_cast<uint8_t*>(b.cache.data), b.cache.page_stride_bytes, b.cache.row_stride_bytes,
            aligned(b.cache.data, 8) && b.cache.page_stride_bytes % 8 == 0 && b.cache.row_stride_bytes % 8 == 0 &&
                layout.rope % 8 == 0};
  w.keys = {reinterpret_cast<uint8_t*>(b.key_cache.data), b.key_cache.page_stride_bytes, 0,
            aligned(b.key_cache.data, 8) && b.key_cache.page_stride_bytes % 8 == 0 && p.index_dim % 4 == 0};
  w.rows_fp8 = p.rows == RowFormat::v32_fp8;
  w.keys_fp8 = p.keys == KeyFormat::fp8;
  w.power_of_two = p.scale_mode == ScaleMode::power_of_two;
  w.scales_offset = layout.scales;
  w.rope_offset = layout.rope;
  return w;
}

}  // namespace

Status run_write(const CacheWriteProblem& p, const CacheWriteBuffers& b, const DeviceInfo&,
                 const Execution& execution) {
  WriteParams w = write_params(p, b);
  for (int32_t first = 0; first < p.tokens; first += WriteShape::kTokensPerLaunch) {
    const int32_t count = std::min(WriteShape::kTokensPerLaunch, p.tokens - first);
    w.first_token = first;
    w.last_token = first + count;
    cache_write<<<static_cast<uint32_t>(count), WriteShape::kThreads, 0, static_cast<cudaStream_t>(execution.stream)>>>(
        w);
    WINNOW_TRY(launch_status("cache_write"));
  }
  return {};
}

Status run_gather(const RowGatherProblem& p, const RowGatherBuffers& b, const DeviceInfo&, const Execution& execution) {
  if (p.rows == RowFormat::f32) return error(StatusCode::unsupported, "row_gather: rows is f32, wants bf16 or v32_fp8");
  if (p.slots == 0) return {};
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  const GatherParams g{reinterpret_cast<const uint8_t*>(b.cache.data),
                       b.cache.page_stride_bytes,
                       b.cache.row_stride_bytes,
                       b.cache.pages * p.page_size,
                       b.slots.data,
                       b.out.data,
                       b.out.stride(0),
                       p.page_size,
                       p.d_nope,
                       p.d_rope,
                       p.rows == RowFormat::v32_fp8,
                       layout.scales,
                       layout.rope};
  row_gather<<<static_cast<uint32_t>(p.slots), WriteShape::kThreads, 0, static_cast<cudaStream_t>(execution.stream)>>>(
      g);
  return launch_status("row_gather");
}

Status init_write(const DeviceInfo&) { return {}; }  // nothing above 48 KB of shared memory

}  // namespace winnow::cuda
