// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor as floats, block scales of fp8 multiplied in.
#pragma once

#include <cstdint>

#include "formats/checkpoint.hpp"

namespace winnow {

inline constexpr int64_t kScaleBlock = 128;  // side of the block that one scale of an E4M3_B128 tensor covers

// Rows [first, first + rows) of dims[0] elements each, counted through all outer dimensions, to out[rows * dims[0]].
// The tensor has data and a decodable type; E4M3_B128 has its block_scales.
void decode_rows(const TensorInfo& tensor, int64_t first, int64_t rows, float* out);

// Bytes of one row in the file.
[[nodiscard]] int64_t row_bytes(const TensorInfo& tensor);

}  // namespace winnow
