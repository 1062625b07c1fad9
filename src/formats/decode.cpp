// SPDX-License-Identifier: Apache-2.0
// Decoding of scalar types and of 32-element blocks, and the dispatch over all types. Formulas: ggml-quants.c of ggml.
//
// Exact: a product of an 11-bit f16 scale with the small integers of a block fits the 24 bits of a float, so only the
// offsets of Q4_1 and Q5_1 round, once.
#include <array>

#include "core/check.hpp"
#include "formats/block_fields.hpp"
#include "formats/storage.hpp"

namespace winnow {
namespace {

void decode_f16(const uint8_t* in, float* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) out[i] = f16_to_float_branchless(load_u16(in + 2 * i));
}

void decode_bf16(const uint8_t* in, float* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i)
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(load_u16(in + 2 * i)) << 16);
}

constexpr std::array<float, 256> e4m3_table() {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = to_float(e4m3{static_cast<uint8_t>(i)});
  return table;
}
constexpr std::array<float, 256> kE4m3 = e4m3_table();

void decode_e4m3(const uint8_t* in, float* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) out[i] = kE4m3[in[i]];
}

// d | 16 bytes: low nibbles are elements 0..15, high nibbles 16..31, less 8.
void decode_q4_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((qs[j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((qs[j] >> 4) - 8);
  }
}

// d, m | nibbles
void decode_q4_1(const uint8_t* block, float* out) {
  const float d = load_f16(block), m = load_f16(block + 2);
  const uint8_t* qs = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(qs[j] & 15) + m;
    out[j + 16] = d * static_cast<float>(qs[j] >> 4) + m;
  }
}

// Fifth bits: bit j of the u32 belongs to element j.
struct FiveBits {
  uint8_t q[32];
  FiveBits(const uint8_t* qh, const uint8_t* qs) {
    const uint32_t high = load_u32(qh);
    for (int j = 0; j < 16; ++j) {
      q[j] = static_cast<uint8_t>((qs[j] & 15) | (((high >> j) & 1) << 4));
      q[j + 16] = static_cast<uint8_t>((qs[j] >> 4) | (((high >> (j + 16)) & 1) << 4));
    }
  }
};

// d | 4 bytes of fifth bits | nibbles, less 16
void decode_q5_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const FiveBits bits(block + 2, block + 6);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(bits.q[j] - 16);
}

// d, m | fifth bits | nibbles
void decode_q5_1(const uint8_t* block, float* out) {
  const float d = load_f16(block), m = load_f16(block + 2);
  const FiveBits bits(block + 4, block + 8);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(bits.q[j]) + m;
}

// d | 32 signed bytes
void decode_q8_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(qs[j]));
}

// d | nibbles that index the non-linear levels
void decode_iq4_nl(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4Levels[qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4Levels[qs[j] >> 4]);
  }
}

// 2^(e - 128), half of the E8M0 scale because the e2m1 table is doubled; e = 0 and 1 are subnormal floats.
float half_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// e | nibbles that index e2m1
void decode_mxfp4(const uint8_t* block, float* out) {
  const float d = half_e8m0(block[0]);
  const uint8_t* qs = block + 1;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kE2m1Doubled[qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kE2m1Doubled[qs[j] >> 4]);
  }
}

// Half of an unsigned e4m3 scale, because the e2m1 table is doubled. 0x7F stands for 0; the top bit is not looked at,
// so that 0xFF is 480, as in ggml.
constexpr std::array<float, 256> half_ue4m3_table() {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i & 0x7F);
    const float value = code == 0x7F ? 480.0f : to_float(e4m3{code});
    table[static_cast<std::size_t>(i)] = i == 0x7F ? 0.0f : value * 0.5f;
  }
  return table;
}
constexpr std::array<float, 256> kHalfUe4m3 = half_ue4m3_table();

// d[4], one per 16 elements | 32 bytes: in each run of 8, low nibbles are elements 0..7, high nibbles 8..15
void decode_nvfp4(const uint8_t* block, float* out) {
  for (int s = 0; s < 4; ++s) {
    const float d = kHalfUe4m3[block[s]];
    const uint8_t* qs = block + 4 + 8 * s;
    for (int j = 0; j < 8; ++j) {
      out[16 * s + j] = d * static_cast<float>(kE2m1Doubled[qs[j] & 15]);
      out[16 * s + 8 + j] = d * static_cast<float>(kE2m1Doubled[qs[j] >> 4]);
    }
  }
}

template <BlockDecoder kDecode>
void each_block(const uint8_t* in, float* out, int64_t elements, const StorageTraits& traits) {
  for (int64_t i = 0; i < elements; i += traits.block_elements, in += traits.block_bytes) kDecode(in, out + i);
}

}  // namespace

void decode(StorageType type, const void* blocks, float* out, int64_t elements) {
  const StorageTraits* traits = traits_of(type);
  WINNOW_CHECK(traits != nullptr && traits->decodable, "decode of type ", static_cast<uint32_t>(type));
  WINNOW_DCHECK(elements % traits->block_elements == 0, elements);
  const auto* in = static_cast<const uint8_t*>(blocks);
  switch (type) {
    case StorageType::F32: std::memcpy(out, in, static_cast<std::size_t>(elements) * 4); return;
    case StorageType::F16: return decode_f16(in, out, elements);
    case StorageType::BF16: return decode_bf16(in, out, elements);
    case StorageType::E4M3_B128: return decode_e4m3(in, out, elements);
    case StorageType::Q4_0: return each_block<decode_q4_0>(in, out, elements, *traits);
    case StorageType::Q4_1: return each_block<decode_q4_1>(in, out, elements, *traits);
    case StorageType::Q5_0: return each_block<decode_q5_0>(in, out, elements, *traits);
    case StorageType::Q5_1: return each_block<decode_q5_1>(in, out, elements, *traits);
    case StorageType::Q8_0: return each_block<decode_q8_0>(in, out, elements, *traits);
    case StorageType::Q2_K: return each_block<decode_q2_k>(in, out, elements, *traits);
    case StorageType::Q3_K: return each_block<decode_q3_k>(in, out, elements, *traits);
    case StorageType::Q4_K: return each_block<decode_q4_k>(in, out, elements, *traits);
    case StorageType::Q5_K: return each_block<decode_q5_k>(in, out, elements, *traits);
    case StorageType::Q6_K: return each_block<decode_q6_k>(in, out, elements, *traits);
    case StorageType::IQ4_NL: return each_block<decode_iq4_nl>(in, out, elements, *traits);
    case StorageType::IQ4_XS: return each_block<decode_iq4_xs>(in, out, elements, *traits);
    case StorageType::MXFP4: return each_block<decode_mxfp4>(in, out, elements, *traits);
    case StorageType::NVFP4: return each_block<decode_nvfp4>(in, out, elements, *traits);
    case StorageType::IQ2_XXS: return each_block<decode_iq2_xxs>(in, out, elements, *traits);
    case StorageType::IQ2_XS: return each_block<decode_iq2_xs>(in, out, elements, *traits);
    case StorageType::IQ2_S: return each_block<decode_iq2_s>(in, out, elements, *traits);
    case StorageType::IQ3_XXS: return each_block<decode_iq3_xxs>(in, out, elements, *traits);
    case StorageType::IQ3_S: return each_block<decode_iq3_s>(in, out, elements, *traits);
    case StorageType::IQ1_S: return each_block<decode_iq1_s>(in, out, elements, *traits);
    case StorageType::IQ1_M: return each_block<decode_iq1_m>(in, out, elements, *traits);
    case StorageType::TQ2_0: return each_block<decode_tq2_0>(in, out, elements, *traits);
    case StorageType::Q1_0: return each_block<decode_q1_0>(in, out, elements, *traits);
    case StorageType::Q2_0: return each_block<decode_q2_0>(in, out, elements, *traits);
    default: break;
  }
  WINNOW_CHECK(false, "the table calls ", traits->name, " decodable and no decoder exists");
}

}  // namespace winnow
