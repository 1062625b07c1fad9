// SPDX-License-Identifier: Apache-2.0
// Sparse MLA, fp8 rows, 64 heads per CTA, for parts with more than 200 KB of shared memory.
#include "backends/cuda/mla_instance.cuh"

WINNOW_MLA_INSTANCE(mla_fp8_h64_overlapped, Fp8Rows, 8, true)
