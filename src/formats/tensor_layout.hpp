// SPDX-License-Identifier: Apache-2.0
// Where tensors lie in their file: sizes without overflow, overlaps, and what part of the promise the file keeps.
// Shared by the containers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow {

inline constexpr int64_t kMaxTensorNameBytes = 256;  // ggml ends at 64; published checkpoints stay below 100

// Bytes of a tensor of these dims. corrupt_data, without the tensor's name, when a dimension is below 1, rows are not
// whole blocks, or the size does not fit 64 bits.
[[nodiscard]] Result<int64_t> tensor_bytes(StorageType type, const std::array<int64_t, 4>& dims);

// Names are fit to print and not longer than kMaxTensorNameBytes.
[[nodiscard]] Status check_name(std::string_view name);

// No two tensors share a byte. tensors: of one file, any order.
[[nodiscard]] Status check_overlaps(std::span<const TensorInfo> tensors);

// Points each tensor at its bytes, or leaves data null when the file ends before the tensor does.
void attach_data(std::span<TensorInfo> tensors, std::span<const std::byte> file);

// Fills by_name; a name that two tensors share is corrupt_data.
[[nodiscard]] Status index_names(Checkpoint& checkpoint);

}  // namespace winnow
