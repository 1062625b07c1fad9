// SPDX-License-Identifier: Apache-2.0
// Decoding of the 1- to 3-bit types. Formulas: ggml-quants.c of ggml. Every product is exact in float.
//
// IQ types store entries of a codebook (8 or 4 elements at once) with signs beside. A 7-bit sign code stands for 8
// signs of which an even number is minus: bit 7 is the parity of the others.
#include <bit>

#include "formats/block_fields.hpp"
#include "formats/iq_codes.hpp"

namespace winnow {
namespace {

template <std::size_t kEntries, std::size_t kElements>
void expand(const uint16_t (&codes)[kEntries], int8_t (&grid)[kEntries][kElements], const int8_t* levels) {
  constexpr int kBits = kElements == 8 ? 2 : 3;
  for (std::size_t i = 0; i < kEntries; ++i) {
    for (std::size_t j = 0; j < kElements; ++j) grid[i][j] = levels[(codes[i] >> (kBits * j)) & ((1 << kBits) - 1)];
  }
}

IqGrids expand_all() {
  constexpr int8_t kIq2[] = {8, 25, 43, 0}, kIq1[] = {-1, 0, 1, 0};
  constexpr int8_t kIq3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62}, kIq3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
  IqGrids grids{};
  expand(kIq2XxsCodes, grids.iq2_xxs, kIq2);
  expand(kIq2XsCodes, grids.iq2_xs, kIq2);
  expand(kIq2SCodes, grids.iq2_s, kIq2);
  expand(kIq1Codes, grids.iq1, kIq1);
  expand(kIq3XxsCodes, grids.iq3_xxs, kIq3Xxs);
  expand(kIq3SCodes, grids.iq3_s, kIq3S);
  return grids;
}

uint8_t even_signs(uint32_t code) {
  code &= 127;
  return static_cast<uint8_t>(code | static_cast<uint32_t>(std::popcount(code) & 1) << 7);
}

// out[j] = ± scale * grid[j]; a set bit is minus.
template <int kElements>
void put_signed(float scale, const int8_t* grid, uint32_t signs, float* out) {
  for (int j = 0; j < kElements; ++j) {
    const float value = scale * static_cast<float>(grid[j]);
    out[j] = (signs >> j) & 1 ? -value : value;
  }
}

int nibble(uint8_t byte, int index) { return index & 1 ? byte >> 4 : byte & 15; }

constexpr float kDelta = 0.125f;  // IQ1: all elements of an entry are moved up or down by it

void put_shifted(float scale, const int8_t* grid, bool down, float* out) {
  const float delta = down ? -kDelta : kDelta;
  for (int j = 0; j < 8; ++j) out[j] = scale * (static_cast<float>(grid[j]) + delta);
}

}  // namespace

const IqGrids& iq_grids() {
  static const IqGrids grids = expand_all();
  return grids;
}

// d | eight groups of 8 bytes: four entries, then a u32 of four 7-bit sign codes and a 4-bit scale on top
void decode_iq2_xxs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int b = 0; b < 8; ++b) {
    const uint8_t* entries = block + 2 + 8 * b;
    const uint32_t word = load_u32(entries + 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int l = 0; l < 4; ++l) {
      put_signed<8>(scale, iq_grids().iq2_xxs[entries[l]], even_signs(word >> (7 * l)), out + 32 * b + 8 * l);
    }
  }
}

// d | 32 u16, each a 9-bit entry and a 7-bit sign code | scales[8], a nibble per two entries
void decode_iq2_xs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* scales = block + 66;
  for (int i = 0; i < 32; ++i) {
    const uint32_t word = load_u16(block + 2 + 2 * i);
    const float scale = d * (0.5f + static_cast<float>(nibble(scales[i / 4], i % 4 / 2))) * 0.25f;
    put_signed<8>(scale, iq_grids().iq2_xs[word & 511], even_signs(word >> 9), out + 8 * i);
  }
}

// d | qs[32] | signs[32] | qh[8], two more bits per entry | scales[8]
void decode_iq2_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t *qs = block + 2, *signs = block + 34, *qh = block + 66, *scales = block + 74;
  for (int i = 0; i < 32; ++i) {
    const int entry = qs[i] + 256 * ((qh[i / 4] >> (i % 4 * 2)) & 3);
    const float scale = d * (0.5f + static_cast<float>(nibble(scales[i / 4], i % 4 / 2))) * 0.25f;
    put_signed<8>(scale, iq_grids().iq2_s[entry], signs[i], out + 8 * i);
  }
}

// d | qs[64], an entry of 4 each | eight u32 of four sign codes and a scale
void decode_iq3_xxs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t *qs = block + 2, *words = block + 66;
  for (int b = 0; b < 8; ++b) {
    const uint32_t word = load_u32(words + 4 * b);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int l = 0; l < 4; ++l) {
      const uint8_t signs = even_signs(word >> (7 * l));
      const uint8_t* entries = qs + 8 * b + 2 * l;
      put_signed<4>(scale, iq_grids().iq3_xxs[entries[0]], signs & 15u, out + 32 * b + 8 * l);
      put_signed<4>(scale, iq_grids().iq3_xxs[entries[1]], signs >> 4, out + 32 * b + 8 * l + 4);
    }
  }
}

// d | qs[64] | qh[8], a ninth bit per entry | signs[32] | scales[4], a nibble per 32 elements
void decode_iq3_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t *qs = block + 2, *qh = block + 66, *signs = block + 74, *scales = block + 106;
  for (int i = 0; i < 64; ++i) {
    const int b = i / 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble(scales[b / 2], b));
    const int entry = qs[i] + 256 * ((qh[b] >> (i % 8)) & 1);
    put_signed<4>(scale, iq_grids().iq3_s[entry], signs[i / 2] >> (i % 2 * 4), out + 4 * i);
  }
}

// d | qs[32] | eight u16: three more bits per entry, a 3-bit scale, and the direction of the shift on top
void decode_iq1_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* qs = block + 2;
  for (int b = 0; b < 8; ++b) {
    const uint32_t high = load_u16(block + 34 + 2 * b);
    const float scale = d * static_cast<float>(2 * ((high >> 12) & 7) + 1);
    for (int l = 0; l < 4; ++l) {
      const uint32_t entry = qs[4 * b + l] + 256 * ((high >> (3 * l)) & 7);
      put_shifted(scale, iq_grids().iq1[entry], high >> 15, out + 32 * b + 8 * l);
    }
  }
}

// qs[32] | qh[16], a nibble per entry: three more bits and the direction | four u16: 3-bit scales per 16 elements, and
// in their top nibbles the bits of d
void decode_iq1_m(const uint8_t* block, float* out) {
  const uint8_t *qs = block, *qh = block + 32, *scales = block + 48;
  uint32_t words[4], d_bits = 0;
  for (int i = 0; i < 4; ++i) {
    words[i] = load_u16(scales + 2 * i);
    d_bits |= words[i] >> 12 << (4 * i);
  }
  const float d = to_float(f16{static_cast<uint16_t>(d_bits)});
  for (int i = 0; i < 32; ++i) {
    const int b = i / 4;
    const uint32_t three = (words[b / 2] >> (6 * (b & 1) + 3 * (i % 4 / 2))) & 7;
    const int high = nibble(qh[i / 2], i);
    put_shifted(d * static_cast<float>(2 * three + 1), iq_grids().iq1[qs[i] + 256 * (high & 7)], high & 8, out + 8 * i);
  }
}

// qs[64] | d: ternary, 2 bits less 1; bytes 32h … hold elements 128h + 32 * shift + byte
void decode_tq2_0(const uint8_t* block, float* out) {
  const float d = load_f16(block + 64);
  for (int run = 0; run < 8; ++run) {
    const uint8_t* qs = block + 32 * (run / 4);
    const int shift = run % 4 * 2;
    for (int l = 0; l < 32; ++l) out[32 * run + l] = d * static_cast<float>(((qs[l] >> shift) & 3) - 1);
  }
}

// d | 128 bits: set is d, clear is -d
void decode_q1_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 128; ++i) out[i] = (block[2 + i / 8] >> (i % 8)) & 1 ? d : -d;
}

// d | 2 bits per element, low ones first, less 1
void decode_q2_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 64; ++i) out[i] = d * static_cast<float>(((block[2 + i / 4] >> (i % 4 * 2)) & 3) - 1);
}

}  // namespace winnow
