// SPDX-License-Identifier: Apache-2.0
// SIMD kernels of the products, chosen once for the CPU at hand.
//
// One rule gives every product its bits: element k of a row of length K goes to lane k mod N of a float32 vector (N
// lanes of the CPU's vectors), lanes accumulate by fused multiply-add in ascending k, and lanes are then added as
//   inside each group of four lanes (0 + 2) + (1 + 3), then upper half + lower half until one group is left.
// Both kernels below follow it, and every storage type decodes to the same floats in both, so one output element has
// the same bits whether its token comes alone or in a chunk, on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/storage.hpp"

namespace winnow::cpu {

inline constexpr int kRowGroup = 4;      // output rows of one tile
inline constexpr int kMaxTokenTile = 6;  // tokens of one tile, at most

struct ProductKernels {
  // out[r] = dot(row r of the matrix, x) for kRowGroup rows that start row_bytes apart. Decodes on the fly: F32, F16,
  // BF16, Q8_0 only. rows may be fewer than kRowGroup: 1 to kRowGroup.
  void (*dot_rows)(StorageType type, const std::byte* w, int64_t row_bytes, int rows, const float* x, int64_t k,
                   float* out);

  // out[t][first + r] = dot(w + r * w_stride, x[t]) for `rows` rows and `tokens` tokens.
  void (*panel)(const float* w, int64_t w_stride, int64_t rows, const float* const* x, int64_t tokens, int64_t k,
                float* const* out, int64_t first);

  // F16, BF16, Q8_0 to float: what decode() gives.
  void (*decode_row)(StorageType type, const std::byte* blocks, int64_t k, float* out);
};

[[nodiscard]] const ProductKernels& product_kernels();
[[nodiscard]] constexpr bool decodes_on_the_fly(StorageType type) {
  return type == StorageType::F32 || type == StorageType::F16 || type == StorageType::BF16 || type == StorageType::Q8_0;
}

// Name of the instruction set in use, for benchmarks: "AVX3", "AVX2", ...
[[nodiscard]] const char* simd_target();

}  // namespace winnow::cpu
