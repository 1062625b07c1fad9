// SPDX-License-Identifier: Apache-2.0
// The compiled kernels, one function that returns each kernel's address. Needs no CUDA header.
#pragma once

#include "backends/cuda/mla_tiles.hpp"

namespace winnow::cuda {

const void* mla_bf16_h8_function();
const void* mla_bf16_h16_function();
const void* mla_bf16_h32_function();
const void* mla_bf16_h64_function();
const void* mla_bf16_h64_overlapped_function();
const void* mla_bf16_h64_wgmma_function();  // sm_90a alone
const void* mla_fp8_h8_function();
const void* mla_fp8_h16_function();
const void* mla_fp8_h32_function();
const void* mla_fp8_h64_function();
const void* mla_fp8_h64_overlapped_function();

// Merges the splits of every token and head, see mla_merge.cu.
const void* mla_merge_function(RowFormat rows, int team_warps);
const void* mla_merge_rows_function();  // of mla_bf16_h64_wgmma
inline constexpr int kMergeThreads = 256;
[[nodiscard]] constexpr int merge_ways_for(int splits) { return splits <= 4 ? 1 : splits <= 16 ? 4 : 8; }
inline constexpr int kMergeShare = 4;  // splits of one warp, at most: 32 splits in eight ways
// CTAs of the merge per token and head block.
[[nodiscard]] constexpr int merge_blocks_for(int team_warps, int splits) {
  return 16 * team_warps * merge_ways_for(splits) / (kMergeThreads / 32);
}

}  // namespace winnow::cuda
