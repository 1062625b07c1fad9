// SPDX-License-Identifier: Apache-2.0
// The compiled kernels, one function that returns each kernel's address. Needs no CUDA header.
#pragma once

#include "backends/cuda/mla_tiles.hpp"

namespace winnow::cuda {

const void* mla_bf16_h8_function();
const void* mla_bf16_h8_spread_function();
const void* mla_bf16_h16_function();
const void* mla_bf16_h32_function();
const void* mla_bf16_h64_function();
const void* mla_bf16_h64_overlapped_function();
const void* mla_bf16_h64_wgmma_function();  // sm_90a alone
const void* mla_fp8_h8_function();
const void* mla_fp8_h8_spread_function();
const void* mla_fp8_h16_function();
const void* mla_fp8_h32_function();
const void* mla_fp8_h64_function();
const void* mla_fp8_h64_overlapped_function();

// Merges the splits of every token and head, see mla_merge.cu. tile: of the first kernel.
const void* mla_merge_function(const MlaTile& tile);
const void* mla_merge_rows_function();  // of mla_bf16_h64_wgmma

}  // namespace winnow::cuda
