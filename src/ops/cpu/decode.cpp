// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/decode.hpp"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.hpp"

namespace winnow::cpu {

constexpr int64_t kScaleBlock = 128;  // E4M3_B128

void decode_matrix_row(const Matrix& w, int64_t o, float* out) {
  if (w.type == StorageType::F32) {
    std::memcpy(out, w.row(o), static_cast<std::size_t>(w.in) * sizeof(float));
    return;
  }
  if (decodes_on_the_fly(w.type)) {
    product_kernels().decode_row(w.type, w.row(o), w.in, out);
    return;
  }
  decode(w.type, w.row(o), out, w.in);
  if (w.block_scales == nullptr) return;
  const float* scales = w.block_scales + (w.first_row + o) / kScaleBlock * w.scale_stride;
  for (int64_t begin = 0; begin < w.in; begin += kScaleBlock) {
    const float scale = scales[begin / kScaleBlock];
    const int64_t end = std::min(begin + kScaleBlock, w.in);
    for (int64_t i = begin; i < end; ++i) out[i] *= scale;
  }
}

}  // namespace winnow::cpu
