// SPDX-License-Identifier: Apache-2.0
// The header of one GGUF v3 file: metadata and tensor infos, from a span of bytes (a mapped file, or a fuzzer's input).
//
// Facts: docs/gguf.md of ggml. Little-endian, no padding between items:
//   "GGUF", u32 version, u64 tensors, u64 keys | key: string, u32 type, value | tensor: string, u32 rank, u64
//   dims[rank], u32 type, u64 offset | zeros up to general.alignment (32) | data, offsets count from here
// The span may end anywhere after the header: tensor data are not touched. Nothing is reserved that the span's size
// does not justify, so a header that promises 2^60 tensors costs nothing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "formats/metadata.hpp"

namespace winnow::gguf {

inline constexpr uint32_t kVersion = 3;
inline constexpr int64_t kDefaultAlignment = 32;

struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // file_offset counts from the start of the file; data is null, file is 0
  int64_t alignment = kDefaultAlignment;
  int64_t header_bytes = 0;  // up to the end of the last tensor info
  int64_t data_offset = 0;   // header_bytes rounded up to the alignment
  int64_t wanted_bytes = 0;  // the file's size when every tensor is there
};

// corrupt_data (unsupported for a known but foreign version or tensor type) naming the key or tensor and the byte.
[[nodiscard]] Result<Header> parse_header(std::span<const std::byte> bytes);

}  // namespace winnow::gguf
