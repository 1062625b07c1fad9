// SPDX-License-Identifier: Apache-2.0
// Launch of sparse MLA: buffers and plan into kernel arguments, one launch, and the merge when there are splits.
// Enqueues on the caller's stream and current device; allocates nothing, synchronises nothing, keeps no state beyond
// the functions' attributes.
#include "backends/cuda/mla_launch.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "backends/cuda/mla_admit.hpp"
#include "backends/cuda/mla_run.hpp"
#include "core/checked.hpp"

namespace winnow::cuda {
namespace {

const void* function_of(const MlaTile& tile) {
  const bool bf16 = tile.rows == RowFormat::bf16;
  switch (tile.team_warps) {
    case 1: return bf16 ? mla_bf16_h8_function() : mla_fp8_h8_function();
    case 2: return bf16 ? mla_bf16_h16_function() : mla_fp8_h16_function();
    case 4: return bf16 ? mla_bf16_h32_function() : mla_fp8_h32_function();
    default: break;
  }
  if (tile.overlapped) return bf16 ? mla_bf16_h64_overlapped_function() : mla_fp8_h64_overlapped_function();
  return bf16 ? mla_bf16_h64_function() : mla_fp8_h64_function();
}

Status cuda_status(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return Status();
  return error(StatusCode::device_error, what, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

// What the copies and vector accesses of the kernels want of addresses and strides.
Status aligned(const SparseMlaProblem& p, const SparseMlaBuffers& b) {
  const auto need = [](bool holds, const char* what, auto found, const char* wanted) {
    if (holds) return Status();
    return error(StatusCode::unsupported, "sparse_mla: ", what, " is ", found, ", the CUDA kernels want ", wanted,
                 "; pad the rows or use --attention cpu.simd");
  };
  const auto multiple_of_16 = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  WINNOW_TRY(need(multiple_of_16(b.q.data), "q", b.q.data, "an address that is a multiple of 16"));
  WINNOW_TRY(need(multiple_of_16(b.out.data), "out", b.out.data, "an address that is a multiple of 16"));
  WINNOW_TRY(need(b.q.token_stride % 8 == 0 && b.q.head_stride % 8 == 0, "a stride of q",
                  b.q.head_stride % 8 ? b.q.head_stride : b.q.token_stride, "multiples of 8 elements"));
  WINNOW_TRY(need(b.out.token_stride % 8 == 0 && b.out.head_stride % 8 == 0, "a stride of out",
                  b.out.head_stride % 8 ? b.out.head_stride : b.out.token_stride, "multiples of 8 elements"));
  WINNOW_TRY(need(p.topk <= 1 || b.topk_slots.strides[1] == 1, "the stride between slots", b.topk_slots.strides[1], "1"));
  if (b.cache.pages == 0) return Status();
  WINNOW_TRY(need(multiple_of_16(b.cache.data), "cache.data", static_cast<const void*>(b.cache.data),
                  "an address that is a multiple of 16"));
  WINNOW_TRY(need(b.cache.row_stride_bytes % 16 == 0, "cache.row_stride_bytes", b.cache.row_stride_bytes, "a multiple of 16"));
  return need(b.cache.pages == 1 || b.cache.page_stride_bytes % 16 == 0, "cache.page_stride_bytes",
              b.cache.page_stride_bytes, "a multiple of 16");
}

MlaParams params_of(const SparseMlaProblem& p, const SparseMlaBuffers& b, const MlaPlan& plan, std::byte* workspace) {
  MlaParams k{};
  k.q = static_cast<const uint16_t*>(b.q.data);
  k.rows = reinterpret_cast<const uint8_t*>(b.cache.data);
  k.lists = b.topk_slots.data;
  k.lens = b.topk_len.data;
  k.sink = b.sink.data;
  k.out = static_cast<uint16_t*>(b.out.data);
  k.lse = b.lse.data;
  k.partial = reinterpret_cast<float*>(workspace);
  k.partial_stats = reinterpret_cast<float*>(workspace + (workspace ? plan.partial_bytes : 0));
  k.q_token_stride = b.q.token_stride, k.q_head_stride = b.q.head_stride;
  k.page_stride = b.cache.page_stride_bytes, k.row_stride = b.cache.row_stride_bytes;
  k.slots = std::min<int64_t>(b.cache.pages * p.page_size, INT64_C(1) << 31);
  k.list_stride = b.topk_slots.strides[0];
  k.len_stride = b.topk_len.strides[0], k.sink_stride = b.sink.strides[0];
  k.out_token_stride = b.out.token_stride, k.out_head_stride = b.out.head_stride;
  k.lse_token_stride = b.lse.strides[0], k.lse_head_stride = b.lse.strides[1];
  k.page_size = p.page_size;
  k.topk = p.topk;
  k.q_heads = p.q_heads, k.head_blocks = plan.head_blocks, k.splits = plan.splits;
  k.teams = plan.tile->teams, k.stages = plan.tile->stages, k.team_bytes = team_bytes_of(*plan.tile);
  k.has_rope = p.d_rope != 0;
  k.flat = b.cache.pages <= 1 || b.cache.page_stride_bytes == b.cache.row_stride_bytes * p.page_size;
  k.merge_ways = merge_ways_for(plan.splits);
  k.d_v = p.d_v;
  k.scale_log2e = p.softmax_scale * 1.4426950408889634f;
  return k;
}

}  // namespace

Status init_mla(const DeviceInfo& device) {
  for (const MlaTile& tile : kMlaTiles) {
    if (shared_bytes_of(tile) > device.smem_per_block) continue;
    // Tiles that share a function are listed largest first or alike, so the largest that fits is asked for.
    int64_t bytes = 0;
    for (const MlaTile& other : kMlaTiles) {
      if (function_of(other) == function_of(tile) && shared_bytes_of(other) <= device.smem_per_block) {
        bytes = std::max(bytes, shared_bytes_of(other));
      }
    }
    WINNOW_TRY(cuda_status(cudaFuncSetAttribute(function_of(tile), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(bytes)),
                           concat("shared memory of ", tile.name)));
    WINNOW_TRY(cuda_status(cudaFuncSetAttribute(function_of(tile), cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared),
                           concat("carve-out of ", tile.name)));
    // The merge wants no shared memory, but a different carve-out would make every SM drain between the two kernels.
    WINNOW_TRY(cuda_status(cudaFuncSetAttribute(mla_merge_function(tile.rows, tile.team_warps),
                                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared),
                           "carve-out of the sparse MLA merge"));
  }
  return Status();
}

Status run_mla(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, const DeviceInfo& device,
               const Execution& execution) {
  const MlaPlan plan = plan_mla(problem, device);
  if (plan.tile == nullptr) return error(StatusCode::unsupported, "sparse_mla: no tile fits this device");
  if (problem.tokens == 0) return Status();
  WINNOW_TRY(aligned(problem, buffers));
  if (execution.workspace_bytes < plan.workspace_bytes) {
    return error(StatusCode::invalid_argument, "sparse_mla: the workspace has ", execution.workspace_bytes,
                 " bytes, this problem wants ", plan.workspace_bytes, "; ask the verdict for workspace_bytes");
  }
  MlaParams params = params_of(problem, buffers, plan, execution.workspace);
  void* arguments[] = {&params};
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const auto blocks = static_cast<unsigned>(problem.tokens * plan.head_blocks);
  WINNOW_TRY(cuda_status(
      cudaLaunchKernel(function_of(*plan.tile), dim3(blocks * plan.splits), dim3(threads_of(*plan.tile)), arguments,
                       static_cast<size_t>(plan.shared_bytes), stream),
      concat("launch of sparse MLA, ", plan.tile->name, ", ", blocks * plan.splits, " blocks")));
  if (plan.splits == 1) return Status();
  const unsigned merge_blocks = blocks * merge_blocks_for(plan.tile->team_warps, plan.splits);
  return cuda_status(cudaLaunchKernel(mla_merge_function(plan.tile->rows, plan.tile->team_warps), dim3(merge_blocks),
                                      dim3(kMergeThreads), arguments, 0, stream),
                     "launch of the sparse MLA merge");
}

}  // namespace winnow::cuda
