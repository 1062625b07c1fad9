// SPDX-License-Identifier: Apache-2.0
// MappedFile: a whole regular file, read-only, by mmap. Pages come in when they are touched, so mapping 400 GB is free.
//
// Owns the mapping; spans handed out die with it. An empty file maps to an empty span. A file that shrinks while it is
// mapped raises SIGBUS at the lost page, which is the operating system's answer and not caught here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/status.hpp"

namespace winnow {

class MappedFile {
 public:
  // not_found when it does not exist; io_error when it cannot be read or is no regular file (a pipe would hang).
  [[nodiscard]] static Result<std::shared_ptr<MappedFile>> open(const std::string& path);

  MappedFile(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, bytes_}; }

 private:
  const std::byte* data_;
  std::size_t bytes_;
};

}  // namespace winnow
