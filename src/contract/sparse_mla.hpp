// SPDX-License-Identifier: Apache-2.0
// Sparse MLA: each query token attends to the cache rows that its list names. The definition that backends share.
//
// For token t and head h, over slots s = topk_slots[t, i] with i < topk_len[t] and 0 <= s < pages * page_size:
//   score[s] = softmax_scale * dot(q[t,h], row[s])           row = nope then rope, d_nope + d_rope elements
//   lse[t,h] = ln(sum of exp(score[s]))                      natural logarithm, the sink not included
//   out[t,h] = sum of exp(score[s] - lse[t,h]) * row[s][0, d_v)  / (1 + exp(sink[h] - lse[t,h]))
// (formula: DeepSeek-V3.2 technical report, absorbed MLA; sink: DeepSeek-V4 / FlashMLA attn_sink).
//
// Edge cases, the same on every backend:
//   no valid slot            out = 0, lse = -inf; q is not read (it may be NaN in padded rows)
//   -1, INT_MIN, >= slots    skipped wherever they stand; what memory lies behind them is never read
//   a slot listed twice      counts twice
//   topk_len < 0 or > topk   clamped to [0, topk]
//   sink -inf / +inf         no sink / out = 0; an empty row stays 0
//   NaN or inf in q          affects that token and head only
// No element of out or lse is left as it was. The caller owns all memory that it names; a backend
// allocates no device memory. The CPU backends keep small scratch per thread, which grows with a problem's sizes.
#pragma once

#include <cstdint>

#include "contract/paged.hpp"
#include "contract/row_format.hpp"
#include "core/dtype.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"

namespace winnow {

struct SparseMlaProblem {
  int32_t tokens = 0;   // query tokens of all sequences, one after the other; 0 is legal
  int32_t q_heads = 0;  // query heads per token on this rank, 1 to 128
  int32_t topk = 0;     // entries of one token's list, -1 among them; 0 is legal
  int32_t page_size = 0;
  int32_t d_nope = 0;  // latent elements of a row, a multiple of 32
  int32_t d_rope = 0;  // rotated elements of a row, an even number; 0 is legal
  int32_t d_v = 0;     // leading elements of a row read as value, <= d_nope
  float softmax_scale = 1.0f;
  RowFormat rows = RowFormat::bf16;
  DType activations = DType::bf16;  // of q and out: bf16, or f32 on CPU
  [[nodiscard]] int32_t d_qk() const { return d_nope + d_rope; }
};

// [tokens, q_heads, width], element type named by the problem, the last dimension contiguous. Strides in elements.
struct HeadTensor {
  void* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

struct SparseMlaBuffers {
  HeadTensor q;                          // [tokens, q_heads, d_qk], read only
  PagedRows cache;                       // [pages, page_size] rows, read only
  TensorView<const int32_t> topk_slots;  // [tokens, topk] the lists
  TensorView<const int32_t> topk_len;    // [tokens] leading entries that count, or no data: topk
  TensorView<const float> sink;          // [q_heads] natural-log logits, or no data: none
  HeadTensor out;                        // [tokens, q_heads, d_v]
  TensorView<float> lse;                 // [tokens, q_heads] natural log, or no data: not wanted
};

// Reads sizes and pointers only, never the memory behind them. invalid_argument names the first broken rule.
[[nodiscard]] Status check(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers);

}  // namespace winnow
