// SPDX-License-Identifier: Apache-2.0
// Decoding of 256-element blocks with a scale per 16 or 32 elements. Formulas: ggml-quants.c of ggml.
//
// Only the subtraction of the minimum (Q2_K, Q4_K, Q5_K) rounds, once: the products fit a float's 24 bits.
#include "formats/block_fields.hpp"

namespace winnow {
namespace {

// The 12 bytes that hold eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K.
struct SixBitPairs {
  uint8_t scale[8], minimum[8];
  explicit SixBitPairs(const uint8_t* s) {
    for (int k = 0; k < 4; ++k) {
      scale[k] = s[k] & 63;
      minimum[k] = s[k + 4] & 63;
      scale[k + 4] = static_cast<uint8_t>((s[k + 8] & 15) | ((s[k] >> 6) << 4));
      minimum[k + 4] = static_cast<uint8_t>((s[k + 8] >> 4) | ((s[k + 4] >> 6) << 4));
    }
  }
};

}  // namespace

// scales[16] (low nibble scale, high nibble minimum) | qs[64] | d | dmin
void decode_q2_k(const uint8_t* block, float* out) {
  const uint8_t* scales = block;
  const float d = load_f16(block + 80), dmin = load_f16(block + 82);
  for (int run = 0; run < 16; ++run) {  // 16 elements each: half, shift group, part
    const uint8_t* qs = block + 16 + 32 * (run / 8) + 16 * (run & 1);
    const int shift = run / 2 % 4 * 2;
    const float scale = d * static_cast<float>(scales[run] & 15);
    const float minimum = dmin * static_cast<float>(scales[run] >> 4);
    for (int l = 0; l < 16; ++l) out[16 * run + l] = scale * static_cast<float>((qs[l] >> shift) & 3) - minimum;
  }
}

// hmask[32] | qs[64] | scales[12], sixteen 6-bit values less 32 | d. A clear mask bit takes 4 off.
void decode_q3_k(const uint8_t* block, float* out) {
  const uint8_t* scales = block + 96;
  const float d = load_f16(block + 108);
  for (int run = 0; run < 16; ++run) {
    const int low = run < 8 ? scales[run] & 15 : scales[run - 8] >> 4;
    const int high = (scales[8 + (run & 3)] >> (run >> 2) * 2) & 3;
    const float scale = d * static_cast<float>(low + 16 * high - 32);
    const uint8_t* qs = block + 32 + 32 * (run / 8) + 16 * (run & 1);
    const uint8_t* mask = block + 16 * (run & 1);
    const int shift = run / 2 % 4 * 2, mask_bit = run / 2;
    for (int l = 0; l < 16; ++l) {
      const int q = ((qs[l] >> shift) & 3) + ((mask[l] >> mask_bit) & 1) * 4 - 4;
      out[16 * run + l] = scale * static_cast<float>(q);
    }
  }
}

// d | dmin | scales[12] | qs[128]: 32 bytes hold 64 elements, low nibbles first
void decode_q4_k(const uint8_t* block, float* out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  const SixBitPairs pairs(block + 4);
  for (int c = 0; c < 4; ++c) {
    const uint8_t* qs = block + 16 + 32 * c;
    const float low_scale = d * static_cast<float>(pairs.scale[2 * c]);
    const float low_min = dmin * static_cast<float>(pairs.minimum[2 * c]);
    const float high_scale = d * static_cast<float>(pairs.scale[2 * c + 1]);
    const float high_min = dmin * static_cast<float>(pairs.minimum[2 * c + 1]);
    for (int l = 0; l < 32; ++l) out[64 * c + l] = low_scale * static_cast<float>(qs[l] & 15) - low_min;
    for (int l = 0; l < 32; ++l) out[64 * c + 32 + l] = high_scale * static_cast<float>(qs[l] >> 4) - high_min;
  }
}

// As Q4_K with qh[32] before qs: bit 2c of byte l is the fifth bit of the low nibble, bit 2c + 1 of the high one.
void decode_q5_k(const uint8_t* block, float* out) {
  const float d = load_f16(block), dmin = load_f16(block + 2);
  const SixBitPairs pairs(block + 4);
  const uint8_t* qh = block + 16;
  for (int c = 0; c < 4; ++c) {
    const uint8_t* qs = block + 48 + 32 * c;
    const float low_scale = d * static_cast<float>(pairs.scale[2 * c]);
    const float low_min = dmin * static_cast<float>(pairs.minimum[2 * c]);
    const float high_scale = d * static_cast<float>(pairs.scale[2 * c + 1]);
    const float high_min = dmin * static_cast<float>(pairs.minimum[2 * c + 1]);
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] & 15) + ((qh[l] >> (2 * c)) & 1) * 16;
      out[64 * c + l] = low_scale * static_cast<float>(q) - low_min;
    }
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> 4) + ((qh[l] >> (2 * c + 1)) & 1) * 16;
      out[64 * c + 32 + l] = high_scale * static_cast<float>(q) - high_min;
    }
  }
}

// ql[128] | qh[64] | scales[16], signed | d. Six bits less 32: 4 from ql, 2 from qh.
void decode_q6_k(const uint8_t* block, float* out) {
  const float d = load_f16(block + 208);
  for (int run = 0; run < 16; ++run) {  // 16 elements each
    const int half = run / 8, quarter = run / 2 % 4, part = run & 1;
    const uint8_t* ql = block + 64 * half + 32 * (quarter & 1) + 16 * part;
    const uint8_t* qh = block + 128 + 32 * half + 16 * part;
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + run]));
    const int low_shift = quarter < 2 ? 0 : 4, high_shift = 2 * quarter;
    for (int l = 0; l < 16; ++l) {
      const int q = ((ql[l] >> low_shift) & 15) + ((qh[l] >> high_shift) & 3) * 16 - 32;
      out[16 * run + l] = scale * static_cast<float>(q);
    }
  }
}

// d | scales_h u16 | scales_l[4] | qs[128]: eight runs of 32, a 6-bit scale less 32 each, levels as IQ4_NL
void decode_iq4_xs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint16_t high = load_u16(block + 2);
  const uint8_t* low = block + 4;
  for (int b = 0; b < 8; ++b) {
    const int six = ((low[b / 2] >> 4 * (b & 1)) & 15) + ((high >> 2 * b) & 3) * 16;
    const float scale = d * static_cast<float>(six - 32);
    const uint8_t* qs = block + 8 + 16 * b;
    for (int j = 0; j < 16; ++j) {
      out[32 * b + j] = scale * static_cast<float>(kIq4Levels[qs[j] & 15]);
      out[32 * b + 16 + j] = scale * static_cast<float>(kIq4Levels[qs[j] >> 4]);
    }
  }
}

}  // namespace winnow
