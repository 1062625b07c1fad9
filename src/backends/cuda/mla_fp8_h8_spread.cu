// SPDX-License-Identifier: Apache-2.0
// Sparse MLA of a few tokens, v32_fp8 rows, 8 heads per CTA. One instantiation per file: they compile side by side.
#include "backends/cuda/mla_launch.hpp"
#include "backends/cuda/mla_spread.cuh"

WINNOW_MLA_SPREAD_INSTANCE(mla_fp8_h8_spread, Fp8Rows)
