// SPDX-License-Identifier: Apache-2.0
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <random>

#include "core/dtype.hpp"
#include "formats/block_fields.hpp"
#include "formats/block_spec.hpp"
#include "formats/checkpoint.hpp"
#include "formats/test_files.hpp"

namespace winnow {
namespace {

constexpr StorageType kBlockTypes[] = {
    StorageType::F16,   StorageType::E4M3_B128, StorageType::Q4_0,   StorageType::Q4_1,   StorageType::Q5_0,
    StorageType::Q5_1,  StorageType::Q8_0,      StorageType::Q2_K,   StorageType::Q3_K,   StorageType::Q4_K,
    StorageType::Q5_K,  StorageType::Q6_K,      StorageType::IQ4_NL, StorageType::IQ4_XS, StorageType::MXFP4,
    StorageType::NVFP4, StorageType::IQ2_XXS,   StorageType::IQ2_XS, StorageType::IQ2_S,  StorageType::IQ3_XXS,
    StorageType::IQ3_S, StorageType::IQ1_S,     StorageType::IQ1_M,  StorageType::TQ2_0,  StorageType::Q1_0,
    StorageType::Q2_0};

bool same(float got, double wanted) {
  if (std::isnan(got) || std::isnan(wanted)) return std::isnan(got) && std::isnan(wanted);
  return std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(static_cast<float>(wanted));
}

// Decodes `blocks` blocks and compares every element with the formula.
void expect_exact(StorageType type, const std::vector<uint8_t>& bytes) {
  const StorageTraits& traits = *traits_of(type);
  const auto blocks = static_cast<int64_t>(bytes.size()) / traits.block_bytes;
  std::vector<float> out(static_cast<std::size_t>(blocks * traits.block_elements), -1.0f);
  decode(type, bytes.data(), out.data(), static_cast<int64_t>(out.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto block = i / static_cast<std::size_t>(traits.block_elements);
    const int element = static_cast<int>(i) % traits.block_elements;
    const double wanted =
        spec::value(type, bytes.data() + block * static_cast<std::size_t>(traits.block_bytes), element);
    ASSERT_TRUE(same(out[i], wanted)) << traits.name << " block " << block << " element " << element << ": " << out[i]
                                      << " wanted " << wanted;
  }
}

TEST(Decode, NothingIsNothing) {
  for (StorageType type : kBlockTypes) decode(type, nullptr, nullptr, 0);
}

// Random bytes reach every scale: NaN, infinities, subnormals and negative ones among them.
TEST(Decode, RandomBlocksEqualTheFormulas) {
  std::mt19937 random(7);
  for (StorageType type : kBlockTypes) {
    std::vector<uint8_t> bytes(static_cast<std::size_t>(traits_of(type)->block_bytes) * 300);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    expect_exact(type, bytes);
  }
}

// Every byte equal: all-zero blocks, all ones (NaN scales), and the patterns between.
TEST(Decode, ConstantBlocksEqualTheFormulas) {
  for (StorageType type : kBlockTypes) {
    for (int value = 0; value < 256; ++value) {
      expect_exact(type, std::vector<uint8_t>(static_cast<std::size_t>(traits_of(type)->block_bytes),
                                              static_cast<uint8_t>(value)));
    }
  }
}

TEST(Decode, EveryHalfAndEveryFp8) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto code = static_cast<uint16_t>(bits);
    ASSERT_TRUE(same(f16_to_float_branchless(code), to_float(f16{code}))) << bits;
  }
  std::vector<uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  expect_exact(StorageType::E4M3_B128, codes);
}

TEST(Decode, HandWorkedBlocks) {
  // d = 0.5: element 0 has nibble 0 -> -4, element 16 nibble 15 -> 3.5.
  std::vector<uint8_t> q4_0 = {0x00, 0x38, 0xF0};
  q4_0.resize(18, 0x88);
  float out[64];
  decode(StorageType::Q4_0, q4_0.data(), out, 32);
  EXPECT_EQ(out[0], -4.0f);
  EXPECT_EQ(out[16], 3.5f);
  EXPECT_EQ(out[1], 0.0f);
  // e = 128 is 2^1: codes 2 and 15 are 1.0 and -6.0.
  std::vector<uint8_t> mxfp4 = {128, 0xF2};
  mxfp4.resize(17, 0);
  decode(StorageType::MXFP4, mxfp4.data(), out, 32);
  EXPECT_EQ(out[0], 2.0f);
  EXPECT_EQ(out[16], -12.0f);
  mxfp4[0] = 0;  // 2^-127 is a subnormal float
  decode(StorageType::MXFP4, mxfp4.data(), out, 32);
  EXPECT_EQ(out[0], 0x1p-127f);
  // The anchor of the e4m3 convention: 0x7E is 448, 0x01 is 2^-9.
  const uint8_t fp8[] = {0x7E, 0x01, 0xFE};
  decode(StorageType::E4M3_B128, fp8, out, 3);
  EXPECT_EQ(out[0], 448.0f);
  EXPECT_EQ(out[1], 0x1p-9f);
  EXPECT_EQ(out[2], -448.0f);
}

TEST(Decode, TableIsConsistent) {
  for (uint32_t id = 0; id < 1100; ++id) {
    const StorageTraits* traits = traits_of(static_cast<StorageType>(id));
    if (traits == nullptr) {
      EXPECT_FALSE(why_unknown(id).empty());
      continue;
    }
    EXPECT_GT(traits->block_elements, 0) << id;
    EXPECT_GT(traits->block_bytes, 0) << id;
    EXPECT_STREQ(name_of(static_cast<StorageType>(id)), traits->name);
    if (!traits->decodable) continue;
    std::vector<uint8_t> block(static_cast<std::size_t>(traits->block_bytes));
    std::vector<float> out(static_cast<std::size_t>(traits->block_elements), -1.0f);
    decode(static_cast<StorageType>(id), block.data(), out.data(), traits->block_elements);  // aborts without a decoder
    EXPECT_NE(out.back(), -1.0f) << traits->name;
    const bool plain = id == static_cast<uint32_t>(StorageType::F32) || id == static_cast<uint32_t>(StorageType::BF16);
    EXPECT_TRUE(plain || std::find(std::begin(kBlockTypes), std::end(kBlockTypes), static_cast<StorageType>(id)) !=
                             std::end(kBlockTypes))
        << traits->name << " is decodable and held against no formula";
  }
  EXPECT_EQ(traits_of(static_cast<StorageType>(137)), nullptr);
}

TEST(Encode, ScalarsRoundTrip) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-24f, INFINITY, 1e-8f};
  std::vector<float> back(values.size());
  std::vector<uint8_t> bytes(values.size() * 4);
  const auto n = static_cast<int64_t>(values.size());
  ASSERT_TRUE(encode(StorageType::F32, values.data(), bytes.data(), n).ok());
  decode(StorageType::F32, bytes.data(), back.data(), n);
  EXPECT_EQ(back, values);
  ASSERT_TRUE(encode(StorageType::F16, values.data(), bytes.data(), n).ok());
  decode(StorageType::F16, bytes.data(), back.data(), n);
  EXPECT_EQ(back, (std::vector<float>{0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-24f, INFINITY, 0.0f}));
  ASSERT_TRUE(encode(StorageType::BF16, values.data(), bytes.data(), n).ok());
  decode(StorageType::BF16, bytes.data(), back.data(), n);
  EXPECT_EQ(back[4], 65536.0f) << "rounded to 8 bits";
  EXPECT_EQ(back[3], -2.5f);
  EXPECT_FAILS(encode(StorageType::Q4_K, values.data(), bytes.data(), 0), "Q4_K", "Q8_0");
}

TEST(Encode, Q8StaysWithinHalfAStep) {
  EXPECT_TRUE(rc::check("error <= d / 2 and the largest value keeps its sign", [] {
    const auto scale = *rc::gen::inRange(-20, 20);
    std::vector<float> values(64);
    for (float& v : values) v = std::ldexp(static_cast<float>(*rc::gen::inRange(-1000000, 1000001)), scale - 20);
    uint8_t blocks[68];
    float back[64];
    RC_ASSERT(encode(StorageType::Q8_0, values.data(), blocks, 64).ok());
    decode(StorageType::Q8_0, blocks, back, 64);
    for (int i = 0; i < 64; ++i) {
      float amax = 0;
      for (int j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
        amax = std::max(amax, std::fabs(values[static_cast<std::size_t>(j)]));
      // Half a step, and 127 times what rounding d to 11 bits moves it (2^-25 where d is subnormal).
      const float d = amax / 127.0f;
      RC_ASSERT(std::fabs(back[i] - values[static_cast<std::size_t>(i)]) <=
                d * 0.5001f + 127 * std::max(d * 0x1p-11f, 0x1p-25f));
    }
  }));
}

TEST(Encode, Q8DegenerateBlocks) {
  uint8_t block[34];
  float back[32];
  std::vector<float> values(32, 0.0f);
  ASSERT_TRUE(encode(StorageType::Q8_0, values.data(), block, 32).ok());
  decode(StorageType::Q8_0, block, back, 32);
  EXPECT_EQ(back[31], 0.0f);
  values[5] = 1e-42f;  // 1 / d overflows
  ASSERT_TRUE(encode(StorageType::Q8_0, values.data(), block, 32).ok());
  decode(StorageType::Q8_0, block, back, 32);
  EXPECT_EQ(back[5], 0.0f);
  values[5] = NAN;  // must not turn into a number
  ASSERT_TRUE(encode(StorageType::Q8_0, values.data(), block, 32).ok());
  decode(StorageType::Q8_0, block, back, 32);
  EXPECT_TRUE(std::isnan(back[5]));
  EXPECT_TRUE(std::isnan(back[0]));
  values[5] = 1e9f;
  EXPECT_FAILS(encode(StorageType::Q8_0, values.data(), block, 32), "too large", "Q8_0");
}

// The same tensors in both containers: bf16 to the bit, Q8_0 within half a step of its block.
TEST(Decode, FixturesAgreeAcrossContainers) {
  const std::string root = "../shared/models/";
  if (!std::filesystem::exists(root + "tiny")) GTEST_SKIP() << root << " is not here";
  struct Pair {
    const char *folder, *gguf, *hf_name, *gguf_name;
  };
  for (const Pair& p :
       {Pair{"nano-dsv32", "nano-dsv32-bf16", "model.layers.1.self_attn.q_b_proj.weight", "blk.1.attn_q_b.weight"},
        Pair{"nano-glm5", "nano-glm5-bf16", "model.norm.weight", "output_norm.weight"},
        Pair{"nano-glm52", "nano-glm52-bf16", "model.layers.4.self_attn.indexer.wk.weight",
             "blk.4.indexer.attn_k.weight"},
        Pair{"tiny", "tiny-q8_0", "lm_head.weight", "output.weight"}}) {
    const auto hf = open_checkpoint(root + p.folder);
    const auto gguf = open_checkpoint(root + "gguf/" + p.gguf + ".gguf");
    ASSERT_TRUE(hf.ok()) << hf.status().message();
    ASSERT_TRUE(gguf.ok()) << gguf.status().message();
    const TensorInfo *a = hf->find(p.hf_name), *b = gguf->find(p.gguf_name);
    ASSERT_TRUE(a != nullptr && b != nullptr) << p.hf_name;
    ASSERT_EQ(a->dims, b->dims);
    const auto n = static_cast<std::size_t>(a->elements());
    std::vector<float> x(n), y(n);
    decode(a->type, a->data, x.data(), a->elements());
    decode(b->type, b->data, y.data(), b->elements());
    if (b->type != StorageType::Q8_0) {
      EXPECT_EQ(x, y) << p.gguf_name;
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto* block = reinterpret_cast<const uint8_t*>(b->data) + i / 32 * 34;
      const float d = load_f16(block);
      ASSERT_LE(std::fabs(x[i] - y[i]), d * 0.51f + 127 * d * 0x1p-11f) << i;
    }
  }
}

}  // namespace
}  // namespace winnow
