// SPDX-License-Identifier: Apache-2.0
// Storage types: how the elements of a tensor lie in a file. Values are ggml type ids (ggml.h), so that a GGUF tensor
// info casts straight to one; types that GGUF does not have stand from 1000 on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace winnow {

enum class StorageType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
  Q1_0 = 41,
  Q2_0 = 42,
  E4M3_B128 = 1000,  // safetensors F8_E4M3 with fp32 `weight_scale_inv` per 128 x 128 block
};

inline constexpr uint32_t kFirstOwnType = 1000;  // ids from here on never come from a GGUF file

struct StorageTraits {
  const char* name;        // "Q4_K"
  int32_t block_elements;  // elements of one block along the contiguous dimension
  int32_t block_bytes;
  bool decodable;  // decode() exists here; otherwise the name is known and that is all
};

// Null when the id is unknown to this build (ids of forks, removed ids).
[[nodiscard]] const StorageTraits* traits_of(StorageType type);
[[nodiscard]] const char* name_of(StorageType type);  // "Q4_K"; "unknown" for an id without traits

// For an id without traits: "the ik_llama.cpp type IQ2_K; …", "a type that ggml has removed (Q4_2)", "unknown".
[[nodiscard]] std::string why_unknown(uint32_t id);

// Decodes `elements` (a multiple of block_elements) of one contiguous run of blocks to float. Exact: every value is
// what the block formulas of ggml give in float. E4M3_B128 decodes without its block scales (they are a second tensor).
// The type must be decodable.
void decode(StorageType type, const void* blocks, float* out, int64_t elements);

// Encodes floats: F32, F16, BF16 (round to nearest even) and Q8_0 (d = amax / 127, q = round(x / d), ggml's rule).
// `unsupported` for every other type.
[[nodiscard]] Status encode(StorageType type, const float* values, void* blocks, int64_t elements);

}  // namespace winnow
