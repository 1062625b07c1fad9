// SPDX-License-Identifier: Apache-2.0
// Cache writer: latent, rope part and index key of new tokens into their slots, quantised as the format asks; and the
// gather that reads rows back for tests and transfers.
#pragma once

#include <cstdint>

#include "contract/paged.hpp"
#include "contract/row_format.hpp"
#include "core/dtype.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"

namespace winnow {

struct CacheWriteProblem {
  int32_t tokens = 0;
  int32_t d_nope = 0, d_rope = 0;
  int32_t index_dim = 0;  // 0: this layer has no indexer, keys are not written
  int32_t page_size = 0;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  ScaleMode scale_mode = ScaleMode::power_of_two;
  DType activations = DType::bf16;  // of latent, rope and key: f32 or bf16
};

struct CacheWriteBuffers {
  const void* latent = nullptr;                                // [tokens, d_nope], rows latent_stride elements apart
  const void* rope = nullptr;                                  // [tokens, d_rope]
  const void* key = nullptr;                                   // [tokens, index_dim], or null when index_dim is 0
  int64_t latent_stride = 0, rope_stride = 0, key_stride = 0;  // elements
  TensorView<const int32_t> slots;                             // [tokens]; -1 and out of range: that token is skipped
  PagedRows cache;
  PagedKeys key_cache;
};

// Quantisation to the bit: contract/quantise.hpp. f32 to bf16 rounds to nearest even, bf16 to f32 is exact. Two tokens
// with the same slot: one of them is stored, whole; which one is not said.
[[nodiscard]] Status check(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers);

// The gather: row r of out becomes the row at slots[r], dequantised; zeros for a slot that is empty or out of range.
struct RowGatherProblem {
  int32_t slots = 0;
  int32_t d_nope = 0, d_rope = 0;
  int32_t page_size = 0;
  RowFormat rows = RowFormat::bf16;
};

struct RowGatherBuffers {
  PagedRows cache;                  // read only
  TensorView<const int32_t> slots;  // [slots]
  TensorView<float> out;            // [slots, d_nope + d_rope]
};

[[nodiscard]] Status check(const RowGatherProblem& problem, const RowGatherBuffers& buffers);

}  // namespace winnow
