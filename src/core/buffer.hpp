// SPDX-License-Identifier: Apache-2.0
// Buffer: owned host memory, aligned for the widest SIMD load and for the cache lines of every CPU we know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/status.hpp"

namespace winnow {

inline constexpr std::size_t kBufferAlignment = 64;

class Buffer {
 public:
  Buffer() = default;

  // bytes >= 0; contents are zero (fresh pages, so untouched memory stays unmapped). out_of_memory when refused.
  [[nodiscard]] static Result<Buffer> allocate(int64_t bytes);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    int64_t bytes;
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{0}};
  int64_t bytes_ = 0;
};

}  // namespace winnow
