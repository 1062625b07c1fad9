// SPDX-License-Identifier: Apache-2.0
// The block formats once more, for tests: one element at a time, in float64, addressed by bits where the decoders walk
// bytes. Slow, and written from the published field tables, not from the decoders.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/iq_codes.hpp"
#include "formats/storage.hpp"

namespace winnow::spec {

// `count` bits from bit `first` of a little-endian byte run.
inline int bits(const uint8_t* p, int first, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i) value |= ((p[(first + i) / 8] >> ((first + i) % 8)) & 1) << i;
  return value;
}

inline double half(const uint8_t* p) {
  const int exponent = bits(p, 10, 5), fraction = bits(p, 0, 10);
  const double sign = bits(p, 15, 1) ? -1 : 1;
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

inline double e4m3fn(uint8_t x) {
  const int exponent = x / 8 % 16, fraction = x % 8;
  if (x % 128 == 127) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return x >= 128 ? -magnitude : magnitude;
}

// Nibble j of a 32-element block whose first half are the low nibbles.
inline int nibble32(const uint8_t* qs, int j) { return bits(qs, (j % 16) * 8 + (j < 16 ? 0 : 4), 4); }

inline double iq4_level(int code) {
  static const double levels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return levels[code];
}
// e2m1: sign, two exponent bits, one fraction bit; the formats know no negative zero.
inline double e2m1(int code) {
  const int exponent = code / 2 % 4, fraction = code % 2;
  const double magnitude = exponent == 0 ? fraction * 0.5 : std::ldexp(2 + fraction, exponent - 2);
  return code > 8 ? -magnitude : magnitude;
}

// Scale (0) or minimum (1) k of the 12 bytes of Q4_K and Q5_K.
inline int six_bits(const uint8_t* s, int k, int minimum) {
  if (k < 4) return bits(s, 8 * (k + 4 * minimum), 6);
  return bits(s, 8 * (k + 4) + 4 * minimum, 4) + 16 * bits(s, 8 * (k - 4 + 4 * minimum) + 6, 2);
}

inline double q2_k(const uint8_t* b, int i) {
  const int scale_byte = i / 16, byte = 32 * (i / 128) + i % 32, shift = i % 128 / 32 * 2;
  return half(b + 80) * bits(b, scale_byte * 8, 4) * bits(b + 16, byte * 8 + shift, 2) -
         half(b + 82) * bits(b, scale_byte * 8 + 4, 4);
}
inline double q3_k(const uint8_t* b, int i) {
  const int k = i / 16, byte = 32 * (i / 128) + i % 32, shift = i % 128 / 32 * 2;
  const uint8_t* s = b + 96;
  const int scale = bits(s, (k % 8) * 8 + (k < 8 ? 0 : 4), 4) + 16 * bits(s, (8 + k % 4) * 8 + 2 * (k / 4), 2) - 32;
  const int q = bits(b + 32, byte * 8 + shift, 2) - (bits(b, (i % 32) * 8 + i / 32, 1) ? 0 : 4);
  return half(b + 108) * scale * q;
}
inline double q4_or_5_k(const uint8_t* b, int i, bool five) {
  const int c = i / 64, k = i / 32, l = i % 32;
  const uint8_t* qs = b + (five ? 48 : 16);
  const int q = bits(qs, (32 * c + l) * 8 + (k % 2) * 4, 4) + (five ? 16 * bits(b + 16, l * 8 + k, 1) : 0);
  return half(b) * six_bits(b + 4, k, 0) * q - half(b + 2) * six_bits(b + 4, k, 1);
}
inline double q6_k(const uint8_t* b, int i) {
  const int h = i / 128, quarter = i % 128 / 32, l = i % 32;
  const int q = bits(b, (64 * h + 32 * (quarter % 2) + l) * 8 + 4 * (quarter / 2), 4) +
                16 * bits(b + 128, (32 * h + l) * 8 + 2 * quarter, 2) - 32;
  return half(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * q;
}
inline double iq4_xs(const uint8_t* b, int i) {
  const int run = i / 32;
  const int scale = bits(b + 4, run * 4, 4) + 16 * bits(b + 2, 2 * run, 2) - 32;
  return half(b) * scale * iq4_level(nibble32(b + 8 + 16 * run, i % 32));
}
// Unsigned e4m3 of NVFP4: 0x7F is 0, the top bit is not looked at.
inline double ue4m3(uint8_t x) {
  const int exponent = bits(&x, 3, 4), fraction = bits(&x, 0, 3);
  if (x == 0x7F) return 0;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}
inline double nvfp4(const uint8_t* b, int i) {
  const int s = i / 16, j = i % 16;
  return e2m1(bits(b + 4, (8 * s + j % 8) * 8 + (j < 8 ? 0 : 4), 4)) * ue4m3(b[s]);
}

// Codebook entry `index`, element j: packed codes of 2 bits (8 elements) or 3 bits (4 elements).
inline int level8(const uint16_t* codes, int index, int j) { return codes[index] / (1 << (2 * j)) % 4; }
inline int level4(const uint16_t* codes, int index, int j) { return codes[index] / (1 << (3 * j)) % 8; }
inline double iq2_grid(const uint16_t* codes, int index, int j) {
  static const double values[] = {8, 25, 43, NAN};
  return values[level8(codes, index, j)];
}
// Sign j of a 7-bit code whose eighth sign makes the number of minuses even.
inline double coded_sign(int code, int j) {
  int minuses = 0;
  for (int k = 0; k < 7; ++k) minuses += code / (1 << k) % 2;
  const int minus = j < 7 ? code / (1 << j) % 2 : minuses % 2;
  return minus ? -1 : 1;
}

inline double iq2_xxs(const uint8_t* b, int i) {
  const uint8_t* group = b + 2 + 8 * (i / 32);
  const int l = i % 32 / 8, j = i % 8;
  return half(b) * (0.5 + bits(group + 4, 28, 4)) / 4 * coded_sign(bits(group + 4, 7 * l, 7), j) *
         iq2_grid(kIq2XxsCodes, group[l], j);
}
inline double iq2_xs(const uint8_t* b, int i) {
  const int entry = i / 8, j = i % 8;
  return half(b) * (0.5 + bits(b + 66, entry / 2 * 4, 4)) / 4 * coded_sign(bits(b + 2, 16 * entry + 9, 7), j) *
         iq2_grid(kIq2XsCodes, bits(b + 2, 16 * entry, 9), j);
}
inline double iq2_s(const uint8_t* b, int i) {
  const int entry = i / 8, j = i % 8, index = b[2 + entry] + 256 * bits(b + 66, 2 * entry, 2);
  return half(b) * (0.5 + bits(b + 74, entry / 2 * 4, 4)) / 4 * (bits(b + 34, i, 1) ? -1 : 1) *
         iq2_grid(kIq2SCodes, index, j);
}
inline double iq3_xxs(const uint8_t* b, int i) {
  static const double values[] = {4, 12, 20, 28, 36, 44, 52, 62};
  const uint8_t* word = b + 66 + 4 * (i / 32);
  return half(b) * (0.5 + bits(word, 28, 4)) / 2 * coded_sign(bits(word, 7 * (i % 32 / 8), 7), i % 8) *
         values[level4(kIq3XxsCodes, b[2 + i / 4], i % 4)];
}
inline double iq3_s(const uint8_t* b, int i) {
  const int index = b[2 + i / 4] + 256 * bits(b + 66, i / 4, 1);
  return half(b) * (1 + 2 * bits(b + 106, i / 32 * 4, 4)) * (bits(b + 74, i, 1) ? -1 : 1) *
         (2 * level4(kIq3SCodes, index, i % 4) + 1);
}
inline double iq1_s(const uint8_t* b, int i) {
  const uint8_t* high = b + 34 + 2 * (i / 32);
  const int index = b[2 + i / 8] + 256 * bits(high, 3 * (i % 32 / 8), 3);
  return half(b) * (2 * bits(high, 12, 3) + 1) *
         (level8(kIq1Codes, index, i % 8) - 1 + (bits(high, 15, 1) ? -0.125 : 0.125));
}
inline double iq1_m(const uint8_t* b, int i) {
  uint8_t d[2] = {};
  for (int nibble = 0; nibble < 4; ++nibble)
    d[nibble / 2] |= static_cast<uint8_t>(bits(b + 48, 16 * nibble + 12, 4) << nibble % 2 * 4);
  const int run = i / 16, entry = i / 8;
  const int scale = bits(b + 48, 16 * (run / 4) + 3 * (run % 4), 3);
  const int index = b[entry] + 256 * bits(b + 32, 4 * entry, 3);
  return half(d) * (2 * scale + 1) *
         (level8(kIq1Codes, index, i % 8) - 1 + (bits(b + 32, 4 * entry + 3, 1) ? -0.125 : 0.125));
}

// Element i of one block; NaN for types without a formula here.
inline double value(StorageType type, const uint8_t* b, int i) {
  switch (type) {
    case StorageType::F16: return half(b);
    case StorageType::E4M3_B128: return e4m3fn(b[0]);
    case StorageType::Q4_0: return half(b) * (nibble32(b + 2, i) - 8);
    case StorageType::Q4_1: return half(b) * nibble32(b + 4, i) + half(b + 2);
    case StorageType::Q5_0: return half(b) * (nibble32(b + 6, i) + 16 * bits(b + 2, i, 1) - 16);
    case StorageType::Q5_1: return half(b) * (nibble32(b + 8, i) + 16 * bits(b + 4, i, 1)) + half(b + 2);
    case StorageType::Q8_0: return half(b) * static_cast<int8_t>(b[2 + i]);
    case StorageType::Q2_K: return q2_k(b, i);
    case StorageType::Q3_K: return q3_k(b, i);
    case StorageType::Q4_K: return q4_or_5_k(b, i, false);
    case StorageType::Q5_K: return q4_or_5_k(b, i, true);
    case StorageType::Q6_K: return q6_k(b, i);
    case StorageType::IQ4_NL: return half(b) * iq4_level(nibble32(b + 2, i));
    case StorageType::IQ4_XS: return iq4_xs(b, i);
    case StorageType::MXFP4: return e2m1(nibble32(b + 1, i)) * std::ldexp(1.0, b[0] - 127);
    case StorageType::NVFP4: return nvfp4(b, i);
    case StorageType::IQ2_XXS: return iq2_xxs(b, i);
    case StorageType::IQ2_XS: return iq2_xs(b, i);
    case StorageType::IQ2_S: return iq2_s(b, i);
    case StorageType::IQ3_XXS: return iq3_xxs(b, i);
    case StorageType::IQ3_S: return iq3_s(b, i);
    case StorageType::IQ1_S: return iq1_s(b, i);
    case StorageType::IQ1_M: return iq1_m(b, i);
    case StorageType::TQ2_0:
      return half(b + 64) * (bits(b, 256 * (i / 128) + 8 * (i % 32) + 2 * (i % 128 / 32), 2) - 1);
    case StorageType::Q1_0: return bits(b + 2, i, 1) ? half(b) : -half(b);
    case StorageType::Q2_0: return half(b) * (bits(b + 2, 2 * i, 2) - 1);
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace winnow::spec
