// SPDX-License-Identifier: Apache-2.0
#include "contract/row_format.hpp"

namespace winnow {

const char* name_of(RowFormat format) {
  switch (format) {
    case RowFormat::f32: return "f32";
    case RowFormat::bf16: return "bf16";
    case RowFormat::v32_fp8: return "v32_fp8";
  }
  return "?";
}

const char* name_of(KeyFormat format) {
  switch (format) {
    case KeyFormat::f32: return "f32";
    case KeyFormat::bf16: return "bf16";
    case KeyFormat::fp8: return "fp8";
  }
  return "?";
}

}  // namespace winnow
