// SPDX-License-Identifier: Apache-2.0
// Sparse MLA, fp8 rows, 8 heads per CTA. One instantiation per file: they compile side by side.
#include "backends/cuda/mla_instance.cuh"

WINNOW_MLA_INSTANCE(mla_fp8_h8, Fp8Rows, 1, false)
