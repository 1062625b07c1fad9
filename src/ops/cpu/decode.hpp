// SPDX-License-Identifier: Apache-2.0
// Rows of a stored matrix as floats.
#pragma once

#include "ops/matrix.hpp"

namespace winnow::cpu {

// out[0, w.in) = row o of w, block scales applied.
void decode_matrix_row(const Matrix& w, int64_t o, float* out);

}  // namespace winnow::cpu
