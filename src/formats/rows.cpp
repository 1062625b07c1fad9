// SPDX-License-Identifier: Apache-2.0
#include "formats/rows.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/checked.hpp"

namespace winnow {
namespace {

// One scale per 128 x 128 block; the last block of a row or column may be partial.
void apply_block_scales(const TensorInfo& tensor, int64_t row, float* values) {
  const int64_t columns = tensor.dims[0], blocks = ceil_div(columns, kScaleBlock);
  const float* scales = tensor.block_scales + row / kScaleBlock * blocks;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t end = std::min(columns, (b + 1) * kScaleBlock);
    for (int64_t i = b * kScaleBlock; i < end; ++i) values[i] *= scales[b];
  }
}

}  // namespace

int64_t row_bytes(const TensorInfo& tensor) {
  const StorageTraits* traits = traits_of(tensor.type);
  return tensor.dims[0] / traits->block_elements * traits->block_bytes;
}

void decode_rows(const TensorInfo& tensor, int64_t first, int64_t rows, float* out) {
  WINNOW_CHECK(tensor.data != nullptr, tensor.name, " has no data");
  const int64_t columns = tensor.dims[0];
  decode(tensor.type, tensor.data + first * row_bytes(tensor), out, rows * columns);
  if (tensor.type != StorageType::E4M3_B128) return;
  WINNOW_CHECK(tensor.block_scales != nullptr, tensor.name, " has no scales");
  for (int64_t r = 0; r < rows; ++r) apply_block_scales(tensor, first + r, out + r * columns);
}

}  // namespace winnow
