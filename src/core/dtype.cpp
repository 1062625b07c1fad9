// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.hpp"

namespace winnow {
namespace {

// Rounds |x| to an unsigned small float with the given fraction bits and bias: ties to even, no overflow handling.
uint32_t round_magnitude(float magnitude, int fraction_bits, int bias) {
  if (magnitude == 0) return 0;  // frexp gives zero the exponent of 0.5
  const int min_exponent = 1 - bias;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  const int ulp_exponent = (exponent - 1 < min_exponent ? min_exponent : exponent - 1) - fraction_bits;
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -ulp_exponent)));
  // units counts ulps of its binade; adding the binade's offset carries into the exponent field by itself.
  return exponent - 1 < min_exponent ? units
                                     : units + (static_cast<uint32_t>(exponent - 1 - min_exponent) << fraction_bits);
}

}  // namespace

const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::e4m3: return "e4m3";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

f16 to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7E00)};
  const float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7C00)};  // halfway above 65504 rounds to infinity
  return {static_cast<uint16_t>(sign | round_magnitude(magnitude, 10, 15))};
}

e4m3 to_e4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return {static_cast<uint8_t>(sign | 0x7F)};
  const float magnitude = std::fabs(x);
  if (magnitude >= 448.0f) return {static_cast<uint8_t>(sign | 0x7E)};
  return {static_cast<uint8_t>(sign | round_magnitude(magnitude, 3, 7))};
}

}  // namespace winnow
