// SPDX-License-Identifier: Apache-2.0
// The header of one safetensors file, from a span of bytes (a mapped file, or a fuzzer's input).
//
//   u64 length of the JSON, little-endian | JSON: name -> {dtype, shape, data_offsets [begin, end)} | data
// Offsets count from the end of the JSON. "__metadata__" (string to string) is skipped. The span may end anywhere
// after the JSON: tensor data are not touched.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow::safetensors {

struct Header {
  // file_offset counts from the start of the file; data is null, file is 0. F8_E4M3 has type E4M3_B128, its scales are
  // a tensor of their own until join_scales().
  std::vector<TensorInfo> tensors;  // by file_offset
  int64_t wanted_bytes = 0;         // the file's size when every tensor is there
};

// corrupt_data (unsupported for a dtype that nothing here reads) naming the tensor and the byte.
[[nodiscard]] Result<Header> parse_header(std::span<const std::byte> bytes);

// Gives every E4M3_B128 tensor `X` its block_scales from the F32 tensor `X_scale_inv`, whose shape must be
// [ceil(rows / 128), ceil(columns / 128)]. Null where the scales are cut off. by_name must be filled.
[[nodiscard]] Status join_scales(Checkpoint& checkpoint);

}  // namespace winnow::safetensors
