// SPDX-License-Identifier: Apache-2.0
// What the SIMD translation units offer to the cpu.simd backend; private. Each function picks its instruction set at
// run time (Highway). Results do not depend on how calls are cut: every output element has one fixed order of
// summation, whatever the blocking around it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "contract/index_select.hpp"
#include "contract/sparse_mla.hpp"
#include "indexer/topk.hpp"

namespace winnow::cpu {

// Floats with the alignment that the widest vectors like. Grows, never shrinks; contents are not kept on growth.
class FloatScratch {
 public:
  [[nodiscard]] float* get(int64_t count);

 private:
  std::vector<float> storage_;
};

// One token, heads [head_begin, head_end), all its valid rows.
struct MlaWork {
  const SparseMlaProblem* problem;
  const SparseMlaBuffers* buffers;
  int64_t token;
  int32_t head_begin, head_end;
  std::span<const std::byte* const> rows;
  FloatScratch* scratch;
};
void attend(const MlaWork& work);

// Tokens of one sequence that share the decoding of keys.
struct IndexToken {
  int64_t token;
  int64_t first, last;  // visible positions
  RunningTopK* selector;
};
// Scores positions [begin, end) for every token that sees them and pushes the scores to its selector.
struct IndexWork {
  const IndexSelectProblem* problem;
  const IndexSelectBuffers* buffers;
  int64_t sequence;  // row of the page table
  std::span<const IndexToken> tokens;
  int64_t begin, end;
  FloatScratch* scratch;
};
void score_positions(const IndexWork& work);

// "AVX3_SPR", "AVX2", ...: what dispatch chose on this machine.
[[nodiscard]] const char* simd_target_name();

}  // namespace winnow::cpu
