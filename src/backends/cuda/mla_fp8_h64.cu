// SPDX-License-Identifier: Apache-2.0
// Sparse MLA, fp8 rows, 64 heads per CTA. One instantiation per file: they compile side by side.
#include "backends/cuda/mla_instance.cuh"

WINNOW_MLA_INSTANCE(mla_fp8_h64, Fp8Rows, 8, false)
