// SPDX-License-Identifier: Apache-2.0
// Sparse MLA, bf16 rows, 64 heads per CTA. One instantiation per file: they compile side by side.
#include "backends/cuda/mla_instance.cuh"

WINNOW_MLA_INSTANCE(mla_bf16_h64, Bf16Rows, 8, false)
