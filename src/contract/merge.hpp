// SPDX-License-Identifier: Apache-2.0
// Merge of partial attention results by their LSE: the same tokens and heads computed over disjoint parts of the slots
// (context parallel ranks, splits).
//
// With m = max over parts of lse[p,t,h] and weight[p] = exp(lse[p,t,h] - m), 0 for a part with lse = -inf:
//   lse[t,h] = m + ln(sum of weight)       out[t,h] = sum of weight[p] * out[p,t,h] / sum of weight
//   then the sink as in sparse_mla.hpp: out / (1 + exp(sink[h] - lse)); partial results are made without a sink
// Every part empty: out = 0, lse = -inf. What an empty part holds in its out is not read (it may be NaN).
#pragma once

#include <cstdint>

#include "contract/sparse_mla.hpp"

namespace winnow {

struct MergeProblem {
  int32_t parts = 0;  // at least 1
  int32_t tokens = 0, q_heads = 0, d_v = 0;
  DType out_type = DType::f32;  // f32 or bf16
};

struct MergeBuffers {
  TensorView<const float> part_out;  // [parts, tokens, q_heads, d_v], the last dimension contiguous
  TensorView<const float> part_lse;  // [parts, tokens, q_heads]
  TensorView<const float> sink;      // [q_heads], or no data: none
  HeadTensor out;                    // [tokens, q_heads, d_v] of out_type
  TensorView<float> lse;             // [tokens, q_heads], or no data: not wanted
};

[[nodiscard]] Status check(const MergeProblem& problem, const MergeBuffers& buffers);

}  // namespace winnow
