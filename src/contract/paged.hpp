// SPDX-License-Identifier: Apache-2.0
// Paged memory that a cache owns and a backend reads or writes. slot = page * page_size + offset; -1 is empty.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow {

// Latent rows. The byte of slot s is data + (s / page_size) * page_stride_bytes + (s % page_size) * row_stride_bytes;
// form it in 64 bits: slot * 656 leaves int32 at 3.3 million slots.
struct PagedRows {
  std::byte* data = nullptr;  // host or device, as the backend; a reader never writes through it
  int64_t pages = 0;          // slots outside [0, pages * page_size) are invalid and read as empty
  int64_t page_stride_bytes = 0;
  int64_t row_stride_bytes = 0;
};

// Index keys: page p starts at data + p * page_stride_bytes, laid out inside as row_format.hpp says.
struct PagedKeys {
  std::byte* data = nullptr;
  int64_t pages = 0;
  int64_t page_stride_bytes = 0;
};

}  // namespace winnow
