// SPDX-License-Identifier: Apache-2.0
// Launch of sparse MLA: buffers and plan into kernel arguments, one launch, and the merge when there are splits.
// Enqueues on the caller's stream and current device; allocates nothing, synchronises nothing, keeps no state beyond
// the functions' attributes and whether they know programmatic dependent launch.
#include "backends/cuda/mla_launch.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "backends/cuda/mla_admit.hpp"
#include "backends/cuda/mla_run.hpp"
#include "core/checked.hpp"
#include "core/cuda_status.hpp"

namespace winnow::cuda {
namespace {

const void* function_of(const MlaTile& tile) {
#ifndef WINNOW_WITHOUT_SM90
  if (is_wgmma(tile)) return mla_bf16_h64_wgmma_function();
#endif
  const bool bf16 = tile.rows == RowFormat::bf16;
  if (tile.spread) return bf16 ? mla_bf16_h8_spread_function() : mla_fp8_h8_spread_function();
  switch (tile.team_warps) {
    case 1: return bf16 ? mla_bf16_h8_function() : mla_fp8_h8_function();
    case 2: return bf16 ? mla_bf16_h16_function() : mla_fp8_h16_function();
    case 4: return bf16 ? mla_bf16_h32_function() : mla_fp8_h32_function();
    default: break;
  }
  if (tile.overlapped) return bf16 ? mla_bf16_h64_overlapped_function() : mla_fp8_h64_overlapped_function();
  return bf16 ? mla_bf16_h64_function() : mla_fp8_h64_function();
}

const void* merge_of(const MlaTile& tile) {
#ifndef WINNOW_WITHOUT_SM90
  if (is_wgmma(tile)) return mla_merge_rows_function();
#endif
  return mla_merge_function(tile);
}

// Whether the loaded code of the kernels has the instructions of programmatic dependent launch, that is, was compiled
// for SM90 or later and not from the PTX of an earlier part. Set by init_mla; until then launches go without.
std::atomic<bool> programmatic{false};

// One launch that may begin while the kernel before it on the stream is finishing (see wait_for_previous_kernel).
Status launch(const void* function, const MlaParams& params, unsigned blocks, unsigned threads, int64_t shared_bytes,
              cudaStream_t stream, const DeviceInfo& device, const char* name) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = device.sm >= 90 && programmatic.load(std::memory_order_relaxed) ? 1 : 0;
  void* arguments[] = {const_cast<MlaParams*>(&params)};
  const cudaError_t code = cudaLaunchKernelExC(&config, function, arguments);
  if (code != cudaSuccess) (void)cudaGetLastError();  // reported here, not by the next launch that asks
  return cuda_status(code, "launch failed").in(name);
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
  WINNOW_TRY(
      need(p.topk <= 1 || b.topk_slots.strides[1] == 1, "the stride between slots", b.topk_slots.strides[1], "1"));
  if (b.cache.pages == 0) return Status();
  WINNOW_TRY(need(multiple_of_16(b.cache.data), "cache.data", static_cast<const void*>(b.cache.data),
                  "an address that is a multiple of 16"));
  WINNOW_TRY(
      need(b.cache.row_stride_bytes % 16 == 0, "cache.row_stride_bytes", b.cache.row_stride_bytes, "a multiple of 16"));
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

Status enqueue(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, const MlaPlan& plan,
               const DeviceInfo& device, const Execution& execution) {
  const MlaParams params = params_of(problem, buffers, plan, execution.workspace);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const auto blocks = static_cast<unsigned>(problem.tokens * plan.head_blocks);
  const MlaTile& tile = *plan.tile;
  WINNOW_TRY(launch(function_of(tile), params, blocks * plan.splits, threads_of(tile), plan.shared_bytes, stream,
                    device, tile.name));
  if (plan.splits == 1) return Status();
  return launch(merge_of(tile), params, blocks * merge_blocks_for(tile, plan.splits), kMergeThreads, 0, stream, device,
                "mla_merge");
}

}  // namespace

Status init_mla(const DeviceInfo& device) {
  cudaFuncAttributes merge{};
  WINNOW_TRY(cuda_status(cudaFuncGetAttributes(&merge, mla_merge_function(kMlaTiles[0])), "attributes of the merge"));
  programmatic.store(merge.ptxVersion >= 90, std::memory_order_relaxed);
  for (const MlaTile& tile : kMlaTiles) {
    if (shared_bytes_of(tile) > device.smem_per_block || (tile.only_sm && tile.only_sm != device.sm)) continue;
    // Tiles that share a function may want different amounts: the largest that fits is asked for.
    int64_t bytes = 0;
    for (const MlaTile& other : kMlaTiles) {
      if (function_of(other) == function_of(tile) && shared_bytes_of(other) <= device.smem_per_block) {
        bytes = std::max(bytes, shared_bytes_of(other));
      }
    }
    WINNOW_TRY(cuda_status(
        cudaFuncSetAttribute(function_of(tile), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        concat("shared memory of ", tile.name)));
    WINNOW_TRY(cuda_status(cudaFuncSetAttribute(function_of(tile), cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared),
                           concat("carve-out of ", tile.name)));
    // The merge wants little shared memory, but a different carve-out would make every SM drain between the two
    // kernels.
    WINNOW_TRY(cuda_status(cudaFuncSetAttribute(merge_of(tile), cudaFuncAttributePreferredSharedMemoryCarveout,
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
  return enqueue(problem, buffers, plan, device, execution);
}

}  // namespace winnow::cuda
