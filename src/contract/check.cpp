// SPDX-License-Identifier: Apache-2.0
// check() of every operation of the contract: sizes and pointers only, the first broken rule is named.
#include <cmath>

#include "contract/cache_write.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/rules.hpp"
#include "contract/sparse_mla.hpp"

namespace winnow {
namespace rules {
namespace {
// Bytes that the elements of a format want their addresses to be multiples of.
int64_t alignment_of(RowFormat format) { return format == RowFormat::bf16 ? 2 : 4; }
int64_t alignment_of(KeyFormat format) { return format == KeyFormat::bf16 ? 2 : 4; }

bool apart(int64_t outer_stride, int64_t inner_stride, int64_t inner, int64_t width) {
  return inner_stride >= width && outer_stride >= (inner - 1) * inner_stride + width;
}
}  // namespace

Status Operation::heads(std::string_view what, const HeadTensor& tensor, int64_t tokens, int64_t heads, int64_t width,
                        bool written) const {
  if (tokens == 0 || width == 0) return Status();
  WINNOW_TRY(need(tensor.data != nullptr, what, "missing", "data"));
  const int64_t token_stride = tokens == 1 ? 0 : tensor.token_stride;  // never used for one token, may be anything
  const int64_t head_stride = heads == 1 ? 0 : tensor.head_stride;
  WINNOW_TRY(at_least(concat(what, ".token_stride"), token_stride, 0));
  WINNOW_TRY(at_least(concat(what, ".head_stride"), head_stride, 0));
  if (!written) return Status();
  const bool disjoint = (tokens == 1 && heads == 1) || (tokens == 1 && head_stride >= width) ||
                        (heads == 1 && token_stride >= width) || apart(token_stride, head_stride, heads, width) ||
                        apart(head_stride, token_stride, tokens, width);
  return need(disjoint, concat(what, " strides"), concat(token_stride, " and ", head_stride),
              concat("rows of ", width, " elements that do not overlap"));
}

Status Operation::rows(const PagedRows& cache, RowFormat format, int64_t d_nope, int64_t d_rope,
                       int64_t page_size) const {
  WINNOW_TRY(at_least("cache.pages", cache.pages, 0));
  if (cache.pages == 0) return Status();
  const int64_t bytes = row_bytes(format, d_nope, d_rope);
  const int64_t align = alignment_of(format);
  WINNOW_TRY(need(checked_mul(cache.pages, page_size).has_value(), "cache.pages", cache.pages, "slots within int64"));
  WINNOW_TRY(need(cache.data != nullptr, "cache.data", "missing", "memory"));
  WINNOW_TRY(at_least("cache.row_stride_bytes", cache.row_stride_bytes, bytes));
  WINNOW_TRY(need(cache.row_stride_bytes % align == 0, "cache.row_stride_bytes", cache.row_stride_bytes,
                  concat("a multiple of ", align)));
  WINNOW_TRY(need(reinterpret_cast<uintptr_t>(cache.data) % static_cast<uintptr_t>(align) == 0, "cache.data",
                  static_cast<const void*>(cache.data), concat("an address that is a multiple of ", align)));
  if (cache.pages == 1) return Status();
  const auto page = checked_mul(page_size - 1, cache.row_stride_bytes);
  WINNOW_TRY(need(page && cache.page_stride_bytes >= *page + bytes, "cache.page_stride_bytes", cache.page_stride_bytes,
                  concat(page_size, " rows of ", cache.row_stride_bytes, " bytes")));
  return need(cache.page_stride_bytes % align == 0, "cache.page_stride_bytes", cache.page_stride_bytes,
              concat("a multiple of ", align));
}

Status Operation::keys(const PagedKeys& cache, KeyFormat format, int64_t index_dim, int64_t page_size) const {
  WINNOW_TRY(at_least("keys.pages", cache.pages, 0));
  if (cache.pages == 0) return Status();
  const int64_t align = alignment_of(format);
  WINNOW_TRY(need(format != KeyFormat::fp8 || page_size * index_dim % 4 == 0, "index_dim", index_dim,
                  "page_size * index_dim that is a multiple of 4 for fp8 keys, whose float scales follow them"));
  WINNOW_TRY(need(cache.data != nullptr, "keys.data", "missing", "memory"));
  WINNOW_TRY(need(reinterpret_cast<uintptr_t>(cache.data) % static_cast<uintptr_t>(align) == 0, "keys.data",
                  static_cast<const void*>(cache.data), concat("an address that is a multiple of ", align)));
  if (cache.pages == 1) return Status();
  WINNOW_TRY(at_least("keys.page_stride_bytes", cache.page_stride_bytes, key_page_bytes(format, page_size, index_dim)));
  return need(cache.page_stride_bytes % align == 0, "keys.page_stride_bytes", cache.page_stride_bytes,
              concat("a multiple of ", align));
}

Status Operation::row_widths(RowFormat format, int64_t d_nope, int64_t d_rope) const {
  WINNOW_TRY(need(format == RowFormat::f32 || format == RowFormat::bf16 || format == RowFormat::v32_fp8, "rows",
                  static_cast<int>(format), "f32 (0), bf16 (1) or v32_fp8 (2)"));
  WINNOW_TRY(need(d_nope > 0 && d_nope % 32 == 0, "d_nope", d_nope, "a positive multiple of 32"));
  return need(d_rope >= 0 && d_rope % 2 == 0, "d_rope", d_rope, "an even number, 0 included");
}
}  // namespace rules

Status check(const SparseMlaProblem& p, const SparseMlaBuffers& b) {
  const rules::Operation op{"sparse_mla"};
  WINNOW_TRY(op.at_least("tokens", p.tokens, 0));
  WINNOW_TRY(op.range("q_heads", p.q_heads, 1, 128));
  WINNOW_TRY(op.at_least("topk", p.topk, 0));
  WINNOW_TRY(op.at_least("page_size", p.page_size, 1));
  WINNOW_TRY(op.row_widths(p.rows, p.d_nope, p.d_rope));
  WINNOW_TRY(op.range("d_v", p.d_v, 1, p.d_nope));
  WINNOW_TRY(op.need(std::isfinite(p.softmax_scale), "softmax_scale", p.softmax_scale, "a finite number"));
  WINNOW_TRY(op.need(p.activations == DType::f32 || p.activations == DType::bf16, "activations", name_of(p.activations),
                     "f32 or bf16"));
  WINNOW_TRY(op.heads("q", b.q, p.tokens, p.q_heads, p.d_qk(), false));
  WINNOW_TRY(op.rows(b.cache, p.rows, p.d_nope, p.d_rope, p.page_size));
  WINNOW_TRY(op.view("topk_slots", b.topk_slots, {p.tokens, p.topk}));
  WINNOW_TRY(op.view("topk_len", b.topk_len, {p.tokens}, true));
  WINNOW_TRY(op.view("sink", b.sink, {p.q_heads}, true));
  WINNOW_TRY(op.heads("out", b.out, p.tokens, p.q_heads, p.d_v, true));
  return op.view("lse", b.lse, {p.tokens, p.q_heads}, true);
}

Status check(const IndexSelectProblem& p, const IndexSelectBuffers& b) {
  const rules::Operation op{"index_select"};
  WINNOW_TRY(op.at_least("tokens", p.tokens, 0));
  WINNOW_TRY(op.range("index_heads", p.index_heads, 1, 64));
  WINNOW_TRY(op.at_least("index_dim", p.index_dim, 1));
  WINNOW_TRY(op.at_least("topk", p.topk, 1));
  WINNOW_TRY(op.at_least("page_size", p.page_size, 1));
  WINNOW_TRY(op.range("max_len", p.max_len, 0, INT32_MAX));
  WINNOW_TRY(op.need(p.keys == KeyFormat::f32 || p.keys == KeyFormat::bf16 || p.keys == KeyFormat::fp8, "keys",
                     static_cast<int>(p.keys), "f32 (0), bf16 (1) or fp8 (2)"));
  WINNOW_TRY(op.need(p.q_type == DType::f32 || p.q_type == DType::bf16 || p.q_type == DType::e4m3, "q_type",
                     name_of(p.q_type), "f32, bf16 or e4m3"));
  if (p.tokens == 0) return Status();
  WINNOW_TRY(op.heads("q", b.q, p.tokens, p.index_heads, p.index_dim, false));
  WINNOW_TRY(op.view("weight", b.weight, {p.tokens, p.index_heads}));
  WINNOW_TRY(op.keys(b.keys, p.keys, p.index_dim, p.page_size));
  WINNOW_TRY(op.need(b.page_table.rank == 2 || p.max_len == 0, "page_table rank", b.page_table.rank, 2));
  const int64_t width = b.page_table.rank == 2 ? b.page_table.size(1) : 0;
  WINNOW_TRY(op.at_least("page_table width", width, ceil_div(p.max_len, p.page_size)));
  if (b.page_table.rank == 2) WINNOW_TRY(op.view("page_table", b.page_table, {b.page_table.size(0), width}));
  WINNOW_TRY(op.view("seq", b.seq, {p.tokens}));
  WINNOW_TRY(op.view("start", b.start, {p.tokens}, true));
  WINNOW_TRY(op.view("len", b.len, {p.tokens}));
  WINNOW_TRY(op.view("out", b.out, {p.tokens, p.topk}));
  WINNOW_TRY(
      op.need(p.tokens == 1 || b.out.stride(0) >= p.topk, "out stride 0", b.out.stride(0), "rows that do not overlap"));
  return op.view("out_len", b.out_len, {p.tokens}, true);
}

Status check(const CacheWriteProblem& p, const CacheWriteBuffers& b) {
  const rules::Operation op{"cache_write"};
  WINNOW_TRY(op.at_least("tokens", p.tokens, 0));
  WINNOW_TRY(op.row_widths(p.rows, p.d_nope, p.d_rope));
  WINNOW_TRY(op.at_least("index_dim", p.index_dim, 0));
  WINNOW_TRY(op.at_least("page_size", p.page_size, 1));
  WINNOW_TRY(op.need(p.activations == DType::f32 || p.activations == DType::bf16, "activations", name_of(p.activations),
                     "f32 or bf16"));
  WINNOW_TRY(op.need(p.scale_mode == ScaleMode::plain || p.scale_mode == ScaleMode::power_of_two, "scale_mode",
                     static_cast<int>(p.scale_mode), "plain (0) or power_of_two (1)"));
  if (p.tokens == 0) return Status();
  WINNOW_TRY(op.need(b.latent != nullptr, "latent", "missing", "data"));
  WINNOW_TRY(op.need(b.rope != nullptr || p.d_rope == 0, "rope", "missing", "data"));
  WINNOW_TRY(op.need(b.key != nullptr || p.index_dim == 0, "key", "missing", "data"));
  WINNOW_TRY(op.at_least("latent_stride", b.latent_stride, 0));
  WINNOW_TRY(op.at_least("rope_stride", b.rope_stride, 0));
  WINNOW_TRY(op.at_least("key_stride", b.key_stride, 0));
  WINNOW_TRY(op.view("slots", b.slots, {p.tokens}));
  WINNOW_TRY(op.rows(b.cache, p.rows, p.d_nope, p.d_rope, p.page_size));
  if (p.index_dim == 0) return Status();
  WINNOW_TRY(op.need(b.key_cache.pages == b.cache.pages, "key_cache.pages", b.key_cache.pages,
                     concat("the ", b.cache.pages, " pages of the latent cache")));
  return op.keys(b.key_cache, p.keys, p.index_dim, p.page_size);
}

Status check(const RowGatherProblem& p, const RowGatherBuffers& b) {
  const rules::Operation op{"row_gather"};
  WINNOW_TRY(op.at_least("slots", p.slots, 0));
  WINNOW_TRY(op.at_least("page_size", p.page_size, 1));
  WINNOW_TRY(op.row_widths(p.rows, p.d_nope, p.d_rope));
  WINNOW_TRY(op.rows(b.cache, p.rows, p.d_nope, p.d_rope, p.page_size));
  WINNOW_TRY(op.view("slots", b.slots, {p.slots}));
  return op.view("out", b.out, {p.slots, p.d_nope + p.d_rope});
}

Status check(const MergeProblem& p, const MergeBuffers& b) {
  const rules::Operation op{"merge"};
  WINNOW_TRY(op.at_least("parts", p.parts, 1));
  WINNOW_TRY(op.at_least("tokens", p.tokens, 0));
  WINNOW_TRY(op.range("q_heads", p.q_heads, 1, 128));
  WINNOW_TRY(op.at_least("d_v", p.d_v, 1));
  WINNOW_TRY(
      op.need(p.out_type == DType::f32 || p.out_type == DType::bf16, "out_type", name_of(p.out_type), "f32 or bf16"));
  WINNOW_TRY(op.view("part_out", b.part_out, {p.parts, p.tokens, p.q_heads, p.d_v}));
  WINNOW_TRY(op.view("part_lse", b.part_lse, {p.parts, p.tokens, p.q_heads}));
  WINNOW_TRY(op.view("sink", b.sink, {p.q_heads}, true));
  WINNOW_TRY(op.heads("out", b.out, p.tokens, p.q_heads, p.d_v, true));
  return op.view("lse", b.lse, {p.tokens, p.q_heads}, true);
}

}  // namespace winnow
