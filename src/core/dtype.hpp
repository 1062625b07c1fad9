// SPDX-License-Identifier: Apache-2.0
// Element types of tensors and caches, and exact scalar conversions. Block-quantised weights are not dtypes:
// they are StorageType in formats/.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace winnow {

enum class DType : uint8_t { f32, f16, bf16, e4m3, i32, u8 };

[[nodiscard]] constexpr int bytes_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::e4m3:
    case DType::u8: return 1;
  }
  return 0;
}
[[nodiscard]] const char* name_of(DType type);

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
// The "fn" variant: no infinities, largest finite 448, 0x7F and 0xFF are NaN.
struct e4m3 {
  uint8_t bits;
};

[[nodiscard]] constexpr float to_float(float x) { return x; }

[[nodiscard]] constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

[[nodiscard]] constexpr float to_float(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1F;
  const uint32_t fraction = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent == 0) {  // subnormal: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

[[nodiscard]] constexpr float to_float(e4m3 x) {
  if ((x.bits & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const uint32_t exponent = (x.bits >> 3) & 0xF;
  const uint32_t fraction = x.bits & 7;
  const float magnitude = exponent == 0 ? static_cast<float>(fraction) * 0x1p-9f
                                        : std::bit_cast<float>(((exponent + 120) << 23) | (fraction << 20));
  return (x.bits & 0x80) ? -magnitude : magnitude;
}

// Round to nearest, ties to even; NaN stays NaN, overflow goes to infinity.
[[nodiscard]] constexpr bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

[[nodiscard]] f16 to_f16(float x);

// Round to nearest, ties to even; beyond 448 saturates to 448, as quantising cache writers do; NaN stays NaN.
[[nodiscard]] e4m3 to_e4m3(float x);

}  // namespace winnow
