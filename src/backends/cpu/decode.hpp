// SPDX-License-Identifier: Apache-2.0
// Scalar decoding of cached bytes to float, for the reference backend and for the cache writer. Private.
#pragma once

#include <cstring>

#include "contract/element_types.hpp"
#include "contract/paged.hpp"
#include "core/dtype.hpp"

namespace winnow::cpu {

template <class T>
[[nodiscard]] inline T load(const void* base, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

[[nodiscard]] inline float element(const void* base, DType type, int64_t index) {
  switch (type) {
    case DType::bf16: return to_float(load<bf16>(base, index));
    case DType::e4m3: return to_float(load<e4m3>(base, index));
    default: return load<float>(base, index);
  }
}

// Null when the slot is empty or out of range: decided in 64 bits before any address exists.
[[nodiscard]] inline std::byte* row_of(const PagedRows& cache, int64_t page_size, int64_t slot) {
  if (slot < 0 || slot >= cache.pages * page_size) return nullptr;
  return cache.data + slot / page_size * cache.page_stride_bytes + slot % page_size * cache.row_stride_bytes;
}

}  // namespace winnow::cpu
