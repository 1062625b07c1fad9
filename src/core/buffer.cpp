// SPDX-License-Identifier: Apache-2.0
#include "core/buffer.hpp"

#include <sys/mman.h>

namespace winnow {

void Buffer::Free::operator()(std::byte* memory) const { munmap(memory, static_cast<std::size_t>(bytes)); }

Result<Buffer> Buffer::allocate(int64_t bytes) {
  WINNOW_CHECK(bytes >= 0, "a buffer of ", bytes, " bytes");
  if (bytes == 0) return Buffer();
  // Anonymous pages are zero and cost nothing until they are touched, so a cache planned for a long context
  // takes memory only as the context grows.
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return error(StatusCode::out_of_memory, "cannot allocate ", bytes,
                 " bytes of host memory; a shorter context or fewer sequences need less");
  }
  Buffer buffer;
  buffer.data_ = {static_cast<std::byte*>(memory), Free{bytes}};
  buffer.bytes_ = bytes;
  return buffer;
}

}  // namespace winnow
