// SPDX-License-Identifier: Apache-2.0
// Matrix: a weight matrix as it is stored, [out, in], rows of `in` elements in any storage type that decodes.
// Borrowed: the bytes lie in a mapped file or in memory that a device or the model owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/storage.hpp"

namespace winnow {

struct Matrix {
  const std::byte* data = nullptr;  // row o starts at data + o * row_bytes
  StorageType type = StorageType::F32;
  int64_t out = 0, in = 0;
  int64_t row_bytes = 0;
  // E4M3_B128 only: element (o, i) is multiplied by block_scales[(first_row + o) / 128 * scale_stride + i / 128].
  // A slice of rows need not begin at a multiple of 128, hence first_row.
  const float* block_scales = nullptr;
  int64_t scale_stride = 0;
  int64_t first_row = 0;

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] int64_t bytes() const { return out * row_bytes; }
  [[nodiscard]] const std::byte* row(int64_t o) const { return data + o * row_bytes; }
  [[nodiscard]] Matrix rows(int64_t first, int64_t count) const {
    Matrix slice = *this;
    slice.data = row(first);
    slice.out = count;
    slice.first_row = first_row + first;
    return slice;
  }
};

}  // namespace winnow
