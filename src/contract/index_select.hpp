// SPDX-License-Identifier: Apache-2.0
// Lightning indexer: which past tokens a query reads. Scores and exact top-k together, because the score matrix
// must never exist as a whole.
//
// For token t over positions p in [start[t], start[t] + len[t]) of its sequence:
//   score[t,p] = key_scale[p] * sum over h of weight[t,h] * max(0, dot(q[t,h], key[p]))
// (DeepSeek-V3.2 report, equation 1; weights already carry index_heads^-0.5 * index_dim^-0.5 and any q scale.)
// max(0, NaN) is 0, as fmaxf has it; NaN and infinity of weight or key_scale go through to the score.
// The topk largest are selected. Order is total: by value, then the LOWER position wins; NaN is below everything,
// -0 equals +0. The same input gives the same set on every backend up to float rounding of the scores.
//
// Output row t: min(len, topk) entries ascending by position, then -1. len <= 0 gives all -1 and out_len 0.
// An entry is a position, or the slot that page_table gives for it: page_table[seq[t], p / page_size] * page_size +
// p % page_size. len[t] <= topk selects every position without scoring anything.
//
// Damaged input, the same on every backend: positions are cut to [0, max_len); seq outside the page table counts as
// len 0; a position whose page id is outside [0, pages) scores NaN and its slot is -1.
#pragma once

#include <cstdint>

#include "contract/paged.hpp"
#include "contract/row_format.hpp"
#include "contract/sparse_mla.hpp"
#include "core/dtype.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"

namespace winnow {

struct IndexSelectProblem {
  int32_t tokens = 0;
  int32_t index_heads = 0;  // 1 to 64
  int32_t index_dim = 0;    // elements of a key and of one query head
  int32_t topk = 0;         // entries per output row, at least 1
  int32_t page_size = 0;
  int64_t max_len = 0;  // upper bound of start + len, sizes the launch; never read from device memory
  KeyFormat keys = KeyFormat::bf16;
  DType q_type = DType::bf16;  // f32 (CPU), bf16, or e4m3 with its scale folded into weight
  bool output_slots = true;    // false: positions
};

struct IndexSelectBuffers {
  HeadTensor q;                          // [tokens, index_heads, index_dim] of q_type, read only
  TensorView<const float> weight;        // [tokens, index_heads], may be negative
  PagedKeys keys;                        // read only
  TensorView<const int32_t> page_table;  // [sequences, pages per sequence]; entries past the length are not read
  TensorView<const int32_t> seq;         // [tokens] row of page_table
  TensorView<const int32_t> start;       // [tokens], or no data: 0
  TensorView<const int32_t> len;         // [tokens] visible positions from start
  TensorView<int32_t> out;               // [tokens, topk]
  TensorView<int32_t> out_len;           // [tokens], or no data: not wanted
};

[[nodiscard]] Status check(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers);

}  // namespace winnow
