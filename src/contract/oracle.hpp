// SPDX-License-Identifier: Apache-2.0
// The contract once more, in float64 on the host, as plainly as possible: what tests hold every backend against.
//
// All buffers are host memory that passed check(). Rows are quantised values as stored, decoded exactly, so that
// quantisation error is no part of a comparison. Nothing here writes into the buffers' outputs: results are returned
// in double (attention, merge), as positions or slots (selection), or as bytes in the given cache (write).
#pragma once

#include <cstdint>
#include <vector>

#include "contract/cache_write.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"

namespace winnow::oracle {

// One element of a strided tensor of f32, bf16 or e4m3.
[[nodiscard]] double element(const void* data, DType type, int64_t index);
// Address of a slot's row, or null when the slot is empty or out of range.
[[nodiscard]] std::byte* row_address(const PagedRows& cache, int64_t page_size, int64_t slot);
// The row dequantised: d_nope + d_rope values.
void decode_row(const std::byte* row, RowFormat format, int64_t d_nope, int64_t d_rope, double* out);
// Key at `offset` of `page`, without its scale; and the scale (1 for formats without one).
double decode_key(const PagedKeys& keys, KeyFormat format, int64_t page_size, int64_t index_dim, int64_t page,
                  int64_t offset, double* out);

struct MlaResult {
  std::vector<double> out;  // [tokens, q_heads, d_v]
  std::vector<double> lse;  // [tokens, q_heads]
  // [tokens, q_heads] largest scale * sum of |q_d * row_d| of a valid slot: the rounding error of a score scales with
  // it
  std::vector<double> magnitude;
};
[[nodiscard]] MlaResult sparse_mla(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers);

// Scores of one token over its cut range, first position first; and for each the sum of |term|, error's yardstick.
struct IndexScores {
  int64_t first = 0;
  std::vector<double> score, magnitude;
};
[[nodiscard]] IndexScores index_scores(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers,
                                       int64_t token);

// The composite order: true when (a, at position pa) is chosen before (b, at position pb).
[[nodiscard]] bool chosen_before(double a, int64_t pa, double b, int64_t pb);

// Positions of the min(n, topk) first by the composite order, ascending, relative to the start of `score`.
[[nodiscard]] std::vector<int64_t> top_positions(const std::vector<double>& score, int64_t topk);

// What stands in the output for a position: itself, or its slot (-1 when the page id is damaged).
[[nodiscard]] int32_t output_entry(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers, int64_t token,
                                   int64_t position);

struct SelectResult {
  std::vector<int32_t> out;      // [tokens, topk]
  std::vector<int32_t> out_len;  // [tokens]
};
[[nodiscard]] SelectResult index_select(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers);

// Writes the bytes of every valid token; the later of two tokens with one slot stays.
void cache_write(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers);

[[nodiscard]] std::vector<float> row_gather(const RowGatherProblem& problem, const RowGatherBuffers& buffers);

struct MergeResult {
  std::vector<double> out;  // [tokens, q_heads, d_v]
  std::vector<double> lse;  // [tokens, q_heads]
};
[[nodiscard]] MergeResult merge(const MergeProblem& problem, const MergeBuffers& buffers);

}  // namespace winnow::oracle
