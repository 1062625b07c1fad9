// SPDX-License-Identifier: Apache-2.0
// Element types inside cached rows and keys, as row_format.hpp lays them out.
#pragma once

#include "contract/row_format.hpp"
#include "core/dtype.hpp"

namespace winnow {

[[nodiscard]] constexpr DType rope_type(RowFormat format) {
  return format == RowFormat::f32 ? DType::f32 : DType::bf16;
}
[[nodiscard]] constexpr DType latent_type(RowFormat format) {
  return format == RowFormat::v32_fp8 ? DType::e4m3 : rope_type(format);
}
[[nodiscard]] constexpr DType key_type(KeyFormat format) {
  return format == KeyFormat::f32 ? DType::f32 : format == KeyFormat::bf16 ? DType::bf16 : DType::e4m3;
}

}  // namespace winnow
