// SPDX-License-Identifier: Apache-2.0
// ByteReader: a cursor over untrusted little-endian bytes. Never reads past the end; says where it stopped and why.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/status.hpp"

namespace winnow {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read by memcpy");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] int64_t offset() const { return offset_; }
  [[nodiscard]] int64_t remaining() const { return static_cast<int64_t>(bytes_.size()) - offset_; }

  template <class T>
  [[nodiscard]] Status read(T& out, std::string_view what) {
    if (remaining() < static_cast<int64_t>(sizeof(T))) return ended(what, sizeof(T));
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += static_cast<int64_t>(sizeof(T));
    return {};
  }

  // u64 length and that many bytes, at most max_bytes.
  [[nodiscard]] Status read_string(std::string& out, int64_t max_bytes, std::string_view what) {
    const int64_t begin = offset_;
    uint64_t length = 0;
    WINNOW_TRY(read(length, what));
    if (length > static_cast<uint64_t>(max_bytes)) {
      return error(StatusCode::corrupt_data, what, " at byte ", begin, " claims a length of ", length,
                   " bytes, wants at most ", max_bytes);
    }
    if (length > static_cast<uint64_t>(remaining())) return ended(what, length);
    out.assign(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
    offset_ += static_cast<int64_t>(length);
    return {};
  }

 private:
  [[nodiscard]] Status ended(std::string_view what, uint64_t wanted) const {
    return error(StatusCode::corrupt_data, "the file ends at byte ", bytes_.size(), " inside ", what,
                 ", which begins at byte ", offset_, " and wants ", wanted, " bytes; is the download complete?");
  }

  std::span<const std::byte> bytes_;
  int64_t offset_ = 0;
};

}  // namespace winnow
