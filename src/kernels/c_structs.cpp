// SPDX-License-Identifier: Apache-2.0
#include "kernels/c_structs.hpp"

#include <algorithm>

namespace winnow::kernels {
namespace {

template <class T>
TensorView<T> rows_view(T* data, int64_t rows, int64_t width, int64_t stride) {
  TensorView<T> view(data, {rows, width});
  view.strides[0] = stride;
  return view;
}

HeadTensor heads_of(const winnow_head_tensor& from) { return {from.data, from.token_stride, from.head_stride}; }

PagedRows rows_of(const winnow_paged_rows& from) {
  return {static_cast<std::byte*>(from.data), from.pages, from.page_stride_bytes, from.row_stride_bytes};
}

PagedKeys keys_of(const winnow_paged_keys& from) {
  return {static_cast<std::byte*>(from.data), from.pages, from.page_stride_bytes};
}

Status in_range(int32_t value, int32_t last, const char* what) {
  if (value >= 0 && value <= last) return {};
  return error(StatusCode::invalid_argument, what, " is ", value, ", wants one of the values 0 to ", last,
               " of winnow.h");
}

}  // namespace

SparseMlaProblem problem_of(const winnow_mla_problem& from) {
  SparseMlaProblem to;
  to.tokens = from.tokens;
  to.q_heads = from.q_heads;
  to.topk = from.topk;
  to.page_size = from.page_size;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.d_v = from.d_v;
  to.softmax_scale = from.softmax_scale;
  to.rows = static_cast<RowFormat>(from.rows);
  to.activations = static_cast<DType>(from.activations);
  return to;
}

SparseMlaBuffers buffers_of(const winnow_mla_buffers& from, const SparseMlaProblem& problem) {
  SparseMlaBuffers to;
  to.q = heads_of(from.q);
  to.cache = rows_of(from.cache);
  to.topk_slots = rows_view(from.topk_slots, problem.tokens, problem.topk, from.topk_slots_stride);
  to.topk_len = TensorView<const int32_t>(from.topk_len, {problem.tokens});
  to.sink = TensorView<const float>(from.sink, {problem.q_heads});
  to.out = heads_of(from.out);
  to.lse = rows_view(from.lse, problem.tokens, problem.q_heads, from.lse_stride);
  return to;
}

IndexSelectProblem problem_of(const winnow_select_problem& from) {
  IndexSelectProblem to;
  to.tokens = from.tokens;
  to.index_heads = from.index_heads;
  to.index_dim = from.index_dim;
  to.topk = from.topk;
  to.page_size = from.page_size;
  to.max_len = from.max_len;
  to.keys = static_cast<KeyFormat>(from.keys);
  to.q_type = static_cast<DType>(from.q_type);
  to.output_slots = from.output_slots != 0;
  return to;
}

IndexSelectBuffers buffers_of(const winnow_select_buffers& from, const IndexSelectProblem& problem) {
  IndexSelectBuffers to;
  to.q = heads_of(from.q);
  to.weight = rows_view(from.weight, problem.tokens, problem.index_heads, from.weight_stride);
  to.keys = keys_of(from.keys);
  to.page_table = rows_view(from.page_table, from.sequences, from.pages_per_sequence, from.page_table_stride);
  to.seq = TensorView<const int32_t>(from.seq, {problem.tokens});
  to.start = TensorView<const int32_t>(from.start, {problem.tokens});
  to.len = TensorView<const int32_t>(from.len, {problem.tokens});
  to.out = rows_view(from.out, problem.tokens, problem.topk, from.out_stride);
  to.out_len = TensorView<int32_t>(from.out_len, {problem.tokens});
  return to;
}

CacheWriteProblem problem_of(const winnow_write_problem& from) {
  CacheWriteProblem to;
  to.tokens = from.tokens;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.index_dim = from.index_dim;
  to.page_size = from.page_size;
  to.rows = static_cast<RowFormat>(from.rows);
  to.keys = static_cast<KeyFormat>(from.keys);
  to.scale_mode = static_cast<ScaleMode>(from.scale_mode);
  to.activations = static_cast<DType>(from.activations);
  return to;
}

CacheWriteBuffers buffers_of(const winnow_write_buffers& from, const CacheWriteProblem& problem) {
  CacheWriteBuffers to;
  to.latent = from.latent;
  to.rope = from.rope;
  to.key = from.key;
  to.latent_stride = from.latent_stride;
  to.rope_stride = from.rope_stride;
  to.key_stride = from.key_stride;
  to.slots = TensorView<const int32_t>(from.slots, {problem.tokens});
  to.cache = rows_of(from.cache);
  to.key_cache = keys_of(from.key_cache);
  return to;
}

RowGatherProblem problem_of(const winnow_gather_problem& from) {
  RowGatherProblem to;
  to.slots = from.slots;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.page_size = from.page_size;
  to.rows = static_cast<RowFormat>(from.rows);
  return to;
}

RowGatherBuffers buffers_of(const winnow_gather_buffers& from, const RowGatherProblem& problem) {
  RowGatherBuffers to;
  to.cache = rows_of(from.cache);
  to.slots = TensorView<const int32_t>(from.slots, {problem.slots});
  to.out = rows_view(from.out, problem.slots, int64_t{problem.d_nope} + problem.d_rope, from.out_stride);
  return to;
}

MergeProblem problem_of(const winnow_merge_problem& from) {
  MergeProblem to;
  to.parts = from.parts;
  to.tokens = from.tokens;
  to.q_heads = from.q_heads;
  to.d_v = from.d_v;
  to.out_type = static_cast<DType>(from.out_type);
  return to;
}

MergeBuffers buffers_of(const winnow_merge_buffers& from, const MergeProblem& problem) {
  MergeBuffers to;
  to.part_out = TensorView<const float>(from.part_out, {problem.parts, problem.tokens, problem.q_heads, problem.d_v});
  to.part_out.strides = {from.part_out_part_stride, from.part_out_token_stride, from.part_out_head_stride, 1};
  to.part_lse = TensorView<const float>(from.part_lse, {problem.parts, problem.tokens, problem.q_heads});
  to.part_lse.strides = {from.part_lse_part_stride, from.part_lse_token_stride, 1, 0};
  to.sink = TensorView<const float>(from.sink, {problem.q_heads});
  to.out = heads_of(from.out);
  to.lse = rows_view(from.lse, problem.tokens, problem.q_heads, from.lse_stride);
  return to;
}

Status check_enums(const winnow_mla_problem& problem) {
  WINNOW_TRY(in_range(problem.rows, WINNOW_ROWS_V32_FP8, "rows"));
  return in_range(problem.activations, WINNOW_E4M3, "activations");
}

Status check_enums(const winnow_select_problem& problem) {
  WINNOW_TRY(in_range(problem.keys, WINNOW_KEYS_FP8, "keys"));
  return in_range(problem.q_type, WINNOW_E4M3, "q_type");
}

Status check_enums(const winnow_write_problem& problem) {
  WINNOW_TRY(in_range(problem.rows, WINNOW_ROWS_V32_FP8, "rows"));
  WINNOW_TRY(in_range(problem.keys, WINNOW_KEYS_FP8, "keys"));
  WINNOW_TRY(in_range(problem.scale_mode, WINNOW_SCALE_POWER_OF_TWO, "scale_mode"));
  return in_range(problem.activations, WINNOW_E4M3, "activations");
}

Status check_enums(const winnow_gather_problem& problem) { return in_range(problem.rows, WINNOW_ROWS_V32_FP8, "rows"); }

Status check_enums(const winnow_merge_problem& problem) { return in_range(problem.out_type, WINNOW_E4M3, "out_type"); }

DeviceInfo device_of(const winnow_device_info& from) {
  DeviceInfo to;
  to.kind = from.kind == WINNOW_DEVICE_CUDA ? DeviceKind::cuda : DeviceKind::cpu;
  to.name = from.name == nullptr ? "" : from.name;
  to.count = from.count;
  to.sm = from.sm;
  to.units = from.units;
  to.memory_bytes = from.memory_bytes;
  to.bandwidth = from.bandwidth;
  to.matrix_flops = from.matrix_flops;
  to.smem_per_block = from.smem_per_block;
  to.smem_per_sm = from.smem_per_sm;
  to.described = from.described != 0;
  return to;
}

void write_device(const DeviceInfo& from, winnow_device_info& info) {
  winnow_device_info whole{};
  whole.struct_size = info.struct_size;
  whole.kind = from.kind == DeviceKind::cuda ? WINNOW_DEVICE_CUDA : WINNOW_DEVICE_CPU;
  whole.count = from.count;
  whole.sm = from.sm;
  whole.units = from.units;
  whole.described = from.described ? 1 : 0;
  whole.memory_bytes = from.memory_bytes;
  whole.bandwidth = from.bandwidth;
  whole.matrix_flops = from.matrix_flops;
  whole.smem_per_block = from.smem_per_block;
  whole.smem_per_sm = from.smem_per_sm;
  whole.name = from.name.c_str();
  std::memcpy(&info, &whole, std::min<std::size_t>(info.struct_size, sizeof whole));
}

void write_verdict(const Verdict& from, winnow_verdict& verdict) {
  for (const Refusal& refusal : from.refusals) {
    winnow_refuse(&verdict, refusal.what.c_str(), refusal.wanted.c_str(), refusal.found.c_str());
  }
  if (!from.admitted()) return;
  winnow_launch_facts& launch = verdict.launch;
  launch.heads_per_block = from.launch.heads_per_block;
  launch.rows_per_tile = from.launch.rows_per_tile;
  launch.stages = from.launch.stages;
  launch.splits = from.launch.splits;
  launch.shared_bytes = from.launch.shared_bytes;
  launch.workspace_bytes = from.launch.workspace_bytes;
  const std::size_t length = std::min(from.launch.note.size(), sizeof launch.note - 1);
  std::memcpy(launch.note, from.launch.note.data(), length);
  launch.note[length] = '\0';
}

Status status_of(const Verdict& verdict, const char* operation) {
  if (verdict.admitted()) return {};
  std::string reasons;
  for (const Refusal& refusal : verdict.refusals) {
    reasons += concat(reasons.empty() ? "" : "; ", refusal.what, ": wants ", refusal.wanted, ", found ", refusal.found);
  }
  return error(StatusCode::unsupported, operation, ": ", reasons);
}

}  // namespace winnow::kernels
