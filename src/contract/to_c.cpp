// SPDX-License-Identifier: Apache-2.0
#include "contract/to_c.hpp"

#include "core/dtype.hpp"
#include "core/status.hpp"

namespace winnow {
namespace {

// Enumerations cross as numbers: each one that a struct or a status carries.
template <class Ours>
constexpr bool same(int c, Ours ours) {
  return c == static_cast<int>(ours);
}
static_assert(same(WINNOW_OK, StatusCode::ok) && same(WINNOW_INVALID_ARGUMENT, StatusCode::invalid_argument));
static_assert(same(WINNOW_NOT_FOUND, StatusCode::not_found) && same(WINNOW_CORRUPT_DATA, StatusCode::corrupt_data));
static_assert(same(WINNOW_UNSUPPORTED, StatusCode::unsupported) &&
              same(WINNOW_OUT_OF_MEMORY, StatusCode::out_of_memory));
static_assert(same(WINNOW_IO_ERROR, StatusCode::io_error) && same(WINNOW_DEVICE_ERROR, StatusCode::device_error));
static_assert(same(WINNOW_CANCELLED, StatusCode::cancelled) && same(WINNOW_INTERNAL, StatusCode::internal));
static_assert(same(WINNOW_DEVICE_CPU, DeviceKind::cpu) && same(WINNOW_DEVICE_CUDA, DeviceKind::cuda));
static_assert(same(WINNOW_F32, DType::f32) && same(WINNOW_F16, DType::f16));
static_assert(same(WINNOW_BF16, DType::bf16) && same(WINNOW_E4M3, DType::e4m3));
static_assert(same(WINNOW_ROWS_F32, RowFormat::f32) && same(WINNOW_ROWS_BF16, RowFormat::bf16));
static_assert(same(WINNOW_ROWS_V32_FP8, RowFormat::v32_fp8));
static_assert(same(WINNOW_KEYS_F32, KeyFormat::f32) && same(WINNOW_KEYS_BF16, KeyFormat::bf16));
static_assert(same(WINNOW_KEYS_FP8, KeyFormat::fp8));
static_assert(same(WINNOW_SCALE_PLAIN, ScaleMode::plain) && same(WINNOW_SCALE_POWER_OF_TWO, ScaleMode::power_of_two));

winnow_head_tensor heads(const HeadTensor& from) { return {from.data, from.token_stride, from.head_stride}; }

winnow_paged_rows rows(const PagedRows& from) {
  return {from.data, from.pages, from.page_stride_bytes, from.row_stride_bytes};
}

winnow_paged_keys keys(const PagedKeys& from) { return {from.data, from.pages, from.page_stride_bytes}; }

}  // namespace

winnow_device_info c_device(const DeviceInfo& from) {
  auto to = sized_struct<winnow_device_info>();
  to.kind = static_cast<int32_t>(from.kind);
  to.count = from.count;
  to.sm = from.sm;
  to.units = from.units;
  to.described = from.described ? 1 : 0;
  to.memory_bytes = from.memory_bytes;
  to.bandwidth = from.bandwidth;
  to.matrix_flops = from.matrix_flops;
  to.smem_per_block = from.smem_per_block;
  to.smem_per_sm = from.smem_per_sm;
  to.name = from.name.c_str();
  return to;
}

winnow_execution c_execution(const Execution& from) {
  auto to = sized_struct<winnow_execution>();
  to.stream = from.stream;
  to.workspace = from.workspace;
  to.workspace_bytes = from.workspace_bytes;
  return to;
}

winnow_mla_problem c_problem(const SparseMlaProblem& from) {
  auto to = sized_struct<winnow_mla_problem>();
  to.tokens = from.tokens;
  to.q_heads = from.q_heads;
  to.topk = from.topk;
  to.page_size = from.page_size;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.d_v = from.d_v;
  to.softmax_scale = from.softmax_scale;
  to.rows = static_cast<int32_t>(from.rows);
  to.activations = static_cast<int32_t>(from.activations);
  return to;
}

winnow_mla_buffers c_buffers(const SparseMlaBuffers& from) {
  auto to = sized_struct<winnow_mla_buffers>();
  to.q = heads(from.q);
  to.cache = rows(from.cache);
  to.topk_slots = from.topk_slots.data;
  to.topk_slots_stride = from.topk_slots.stride(0);
  to.topk_len = from.topk_len.data;
  to.sink = from.sink.data;
  to.out = heads(from.out);
  to.lse = from.lse.data;
  to.lse_stride = from.lse.stride(0);
  return to;
}

winnow_select_problem c_problem(const IndexSelectProblem& from) {
  auto to = sized_struct<winnow_select_problem>();
  to.tokens = from.tokens;
  to.index_heads = from.index_heads;
  to.index_dim = from.index_dim;
  to.topk = from.topk;
  to.page_size = from.page_size;
  to.max_len = from.max_len;
  to.keys = static_cast<int32_t>(from.keys);
  to.q_type = static_cast<int32_t>(from.q_type);
  to.output_slots = from.output_slots ? 1 : 0;
  return to;
}

winnow_select_buffers c_buffers(const IndexSelectBuffers& from) {
  auto to = sized_struct<winnow_select_buffers>();
  to.q = heads(from.q);
  to.weight = from.weight.data;
  to.weight_stride = from.weight.stride(0);
  to.keys = keys(from.keys);
  to.page_table = from.page_table.data;
  to.sequences = from.page_table.size(0);
  to.pages_per_sequence = from.page_table.size(1);
  to.page_table_stride = from.page_table.stride(0);
  to.seq = from.seq.data;
  to.start = from.start.data;
  to.len = from.len.data;
  to.out = from.out.data;
  to.out_stride = from.out.stride(0);
  to.out_len = from.out_len.data;
  return to;
}

winnow_write_problem c_problem(const CacheWriteProblem& from) {
  auto to = sized_struct<winnow_write_problem>();
  to.tokens = from.tokens;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.index_dim = from.index_dim;
  to.page_size = from.page_size;
  to.rows = static_cast<int32_t>(from.rows);
  to.keys = static_cast<int32_t>(from.keys);
  to.scale_mode = static_cast<int32_t>(from.scale_mode);
  to.activations = static_cast<int32_t>(from.activations);
  return to;
}

winnow_write_buffers c_buffers(const CacheWriteBuffers& from) {
  auto to = sized_struct<winnow_write_buffers>();
  to.latent = from.latent;
  to.rope = from.rope;
  to.key = from.key;
  to.latent_stride = from.latent_stride;
  to.rope_stride = from.rope_stride;
  to.key_stride = from.key_stride;
  to.slots = from.slots.data;
  to.cache = rows(from.cache);
  to.key_cache = keys(from.key_cache);
  return to;
}

winnow_gather_problem c_problem(const RowGatherProblem& from) {
  auto to = sized_struct<winnow_gather_problem>();
  to.slots = from.slots;
  to.d_nope = from.d_nope;
  to.d_rope = from.d_rope;
  to.page_size = from.page_size;
  to.rows = static_cast<int32_t>(from.rows);
  return to;
}

winnow_gather_buffers c_buffers(const RowGatherBuffers& from) {
  auto to = sized_struct<winnow_gather_buffers>();
  to.cache = rows(from.cache);
  to.slots = from.slots.data;
  to.out = from.out.data;
  to.out_stride = from.out.stride(0);
  return to;
}

winnow_merge_problem c_problem(const MergeProblem& from) {
  auto to = sized_struct<winnow_merge_problem>();
  to.parts = from.parts;
  to.tokens = from.tokens;
  to.q_heads = from.q_heads;
  to.d_v = from.d_v;
  to.out_type = static_cast<int32_t>(from.out_type);
  return to;
}

winnow_merge_buffers c_buffers(const MergeBuffers& from) {
  auto to = sized_struct<winnow_merge_buffers>();
  to.part_out = from.part_out.data;
  to.part_out_part_stride = from.part_out.stride(0);
  to.part_out_token_stride = from.part_out.stride(1);
  to.part_out_head_stride = from.part_out.stride(2);
  to.part_lse = from.part_lse.data;
  to.part_lse_part_stride = from.part_lse.stride(0);
  to.part_lse_token_stride = from.part_lse.stride(1);
  to.sink = from.sink.data;
  to.out = heads(from.out);
  to.lse = from.lse.data;
  to.lse_stride = from.lse.stride(0);
  return to;
}

}  // namespace winnow
