// SPDX-License-Identifier: Apache-2.0
// Reading the fields of quantised blocks. Blocks are packed and unaligned, so everything goes through memcpy; the
// loops around are plain so that the compiler vectorises them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/dtype.hpp"

namespace winnow {

[[nodiscard]] inline uint16_t load_u16(const uint8_t* p) {
  uint16_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

[[nodiscard]] inline uint32_t load_u32(const uint8_t* p) {
  uint32_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

[[nodiscard]] inline float load_f16(const uint8_t* p) { return to_float(f16{load_u16(p)}); }

// to_float(f16) without branches, for loops over whole rows. Subnormals go through an integer conversion: scaling a
// subnormal float would take a microcode assist per element.
[[nodiscard]] inline float f16_to_float_branchless(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  const uint32_t exponent = magnitude & 0x0F800000u;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude | 0x7F800000u;
  const uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(bits & 0x3FF)) * 0x1p-24f);
  const uint32_t finite = exponent == 0 ? small : normal;
  return std::bit_cast<float>(sign | (exponent == 0x0F800000u ? special : finite));
}

// The non-linear 4-bit levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice the e2m1 values of MXFP4 and NVFP4.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// One block to floats; see decode_*.cpp. Public to decode.cpp alone.
using BlockDecoder = void (*)(const uint8_t* block, float* out);
void decode_q2_k(const uint8_t* block, float* out);
void decode_q3_k(const uint8_t* block, float* out);
void decode_q4_k(const uint8_t* block, float* out);
void decode_q5_k(const uint8_t* block, float* out);
void decode_q6_k(const uint8_t* block, float* out);
void decode_iq4_xs(const uint8_t* block, float* out);
void decode_iq2_xxs(const uint8_t* block, float* out);
void decode_iq2_xs(const uint8_t* block, float* out);
void decode_iq2_s(const uint8_t* block, float* out);
void decode_iq3_xxs(const uint8_t* block, float* out);
void decode_iq3_s(const uint8_t* block, float* out);
void decode_iq1_s(const uint8_t* block, float* out);
void decode_iq1_m(const uint8_t* block, float* out);
void decode_tq2_0(const uint8_t* block, float* out);
void decode_q1_0(const uint8_t* block, float* out);
void decode_q2_0(const uint8_t* block, float* out);

}  // namespace winnow
