// SPDX-License-Identifier: Apache-2.0
// The table of storage types, and encoding. Sizes: ggml-common.h of ggml.
#include "formats/storage.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "core/dtype.hpp"

namespace winnow {
namespace {

struct Row {
  StorageType type;
  StorageTraits traits;
};
// name, elements per block, bytes per block, decode() exists
constexpr Row kTypes[] = {
    {StorageType::F32, {"F32", 1, 4, true}},
    {StorageType::F16, {"F16", 1, 2, true}},
    {StorageType::Q4_0, {"Q4_0", 32, 18, true}},
    {StorageType::Q4_1, {"Q4_1", 32, 20, true}},
    {StorageType::Q5_0, {"Q5_0", 32, 22, true}},
    {StorageType::Q5_1, {"Q5_1", 32, 24, true}},
    {StorageType::Q8_0, {"Q8_0", 32, 34, true}},
    {StorageType::Q8_1, {"Q8_1", 32, 36, false}},  // a format of activations, never stored
    {StorageType::Q2_K, {"Q2_K", 256, 84, true}},
    {StorageType::Q3_K, {"Q3_K", 256, 110, true}},
    {StorageType::Q4_K, {"Q4_K", 256, 144, true}},
    {StorageType::Q5_K, {"Q5_K", 256, 176, true}},
    {StorageType::Q6_K, {"Q6_K", 256, 210, true}},
    {StorageType::Q8_K, {"Q8_K", 256, 292, false}},  // a format of activations, never stored
    {StorageType::IQ2_XXS, {"IQ2_XXS", 256, 66, true}},
    {StorageType::IQ2_XS, {"IQ2_XS", 256, 74, true}},
    {StorageType::IQ3_XXS, {"IQ3_XXS", 256, 98, true}},
    {StorageType::IQ1_S, {"IQ1_S", 256, 50, true}},
    {StorageType::IQ4_NL, {"IQ4_NL", 32, 18, true}},
    {StorageType::IQ3_S, {"IQ3_S", 256, 110, true}},
    {StorageType::IQ2_S, {"IQ2_S", 256, 82, true}},
    {StorageType::IQ4_XS, {"IQ4_XS", 256, 136, true}},
    {StorageType::I8, {"I8", 1, 1, false}},
    {StorageType::I16, {"I16", 1, 2, false}},
    {StorageType::I32, {"I32", 1, 4, false}},
    {StorageType::I64, {"I64", 1, 8, false}},
    {StorageType::F64, {"F64", 1, 8, false}},
    {StorageType::IQ1_M, {"IQ1_M", 256, 56, true}},
    {StorageType::BF16, {"BF16", 1, 2, true}},
    {StorageType::TQ1_0, {"TQ1_0", 256, 54, false}},
    {StorageType::TQ2_0, {"TQ2_0", 256, 66, true}},
    {StorageType::MXFP4, {"MXFP4", 32, 17, true}},
    {StorageType::NVFP4, {"NVFP4", 64, 36, true}},
    {StorageType::Q1_0, {"Q1_0", 128, 18, true}},
    {StorageType::Q2_0, {"Q2_0", 64, 18, true}},
    {StorageType::E4M3_B128, {"E4M3_B128", 1, 1, true}},
};

struct ForeignType {
  uint32_t id;
  const char* name;
};
// Ids that only ik_llama.cpp writes; it has more between 97 and 399 whose names are not listed here.
constexpr ForeignType kIkTypes[] = {
    {36, "I2_S"},   {133, "Q6_0"},  {137, "IQ2_K"},  {138, "IQ3_K"},  {139, "IQ4_K"},
    {140, "IQ5_K"}, {141, "IQ6_K"}, {144, "IQ4_KS"}, {145, "IQ2_KS"}, {146, "IQ4_KSS"},
};

constexpr int kQ8Block = 32;

// ggml's rule: d = amax / 127 in float, q = round half away from zero of x * (1 / d), d stored as f16. A block that
// holds NaN or infinity gets d = NaN: the damage stays visible instead of turning into ordinary numbers.
Status encode_q8_0_block(const float* x, uint8_t* out, int64_t first) {
  float amax = 0;
  bool finite = true;
  for (int i = 0; i < kQ8Block; ++i) {
    finite = finite && std::isfinite(x[i]);
    amax = std::max(amax, std::fabs(x[i]));
  }
  const float d = finite ? amax / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const f16 stored = to_f16(d);
  if (finite && std::isinf(to_float(stored))) {
    return error(StatusCode::unsupported, "a value of ", amax, " among elements ", first, " to ", first + kQ8Block - 1,
                 " is too large for Q8_0; use F32 or BF16");
  }
  const float inverse = finite && d > 0 ? 1.0f / d : 0.0f;
  std::memcpy(out, &stored, 2);
  for (int i = 0; i < kQ8Block; ++i) {
    // 1 / d overflows for subnormal d: clamp, so that the conversion stays defined.
    const float q = finite ? std::clamp(std::round(x[i] * inverse), -127.0f, 127.0f) : 1.0f;
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::isnan(q) ? 0.0f : q));
  }
  return {};
}

}  // namespace

const StorageTraits* traits_of(StorageType type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Row& r) { return r.type == type; });
  return found == std::end(kTypes) ? nullptr : &found->traits;
}

const char* name_of(StorageType type) {
  const StorageTraits* traits = traits_of(type);
  return traits != nullptr ? traits->name : "unknown";
}

std::string why_unknown(uint32_t id) {
  for (const ForeignType& t : kIkTypes) {
    if (t.id == id) return concat("the ik_llama.cpp type ", t.name, "; use a file quantised by mainline llama.cpp");
  }
  if ((id >= 97 && id <= 99) || (id >= 133 && id < 400)) {
    return "one that only ik_llama.cpp writes; use a file quantised by mainline llama.cpp";
  }
  if (id == 4 || id == 5 || (id >= 31 && id <= 33) || id == 37 || id == 38) {
    return "one that ggml has removed; quantise the model again";
  }
  return "unknown to this build; the file is damaged, or newer than this program";
}

Status encode(StorageType type, const float* values, void* blocks, int64_t elements) {
  auto* out = static_cast<uint8_t*>(blocks);
  switch (type) {
    case StorageType::F32: std::memcpy(out, values, static_cast<std::size_t>(elements) * 4); return {};
    case StorageType::F16:
      for (int64_t i = 0; i < elements; ++i) {
        const f16 half = to_f16(values[i]);
        std::memcpy(out + 2 * i, &half, 2);
      }
      return {};
    case StorageType::BF16:
      for (int64_t i = 0; i < elements; ++i) {
        const bf16 half = to_bf16(values[i]);
        std::memcpy(out + 2 * i, &half, 2);
      }
      return {};
    case StorageType::Q8_0:
      WINNOW_CHECK(elements % kQ8Block == 0, elements);
      for (int64_t i = 0; i < elements; i += kQ8Block) {
        WINNOW_TRY(encode_q8_0_block(values + i, out + i / kQ8Block * 34, i));
      }
      return {};
    default: break;
  }
  return error(StatusCode::unsupported, "encoding to ", name_of(type), " is not built; wants F32, F16, BF16 or Q8_0");
}

}  // namespace winnow
