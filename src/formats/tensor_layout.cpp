// SPDX-License-Identifier: Apache-2.0
#include "formats/tensor_layout.hpp"

#include <algorithm>
#include <numeric>

#include "core/checked.hpp"
#include "formats/quoted.hpp"

namespace winnow {

Result<int64_t> tensor_bytes(StorageType type, const std::array<int64_t, 4>& dims) {
  const StorageTraits* traits = traits_of(type);
  WINNOW_CHECK(traits != nullptr, "type ", static_cast<uint32_t>(type));
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 1) return error(StatusCode::corrupt_data, "dimension ", d, " is ", dims[d], ", wants 1 or more");
  }
  if (dims[0] % traits->block_elements != 0) {
    return error(StatusCode::corrupt_data, "rows have ", dims[0], " elements, ", traits->name, " wants a multiple of ",
                 traits->block_elements);
  }
  const int64_t row_blocks = dims[0] / traits->block_elements;
  const auto elements = checked_product({dims[0], dims[1], dims[2], dims[3]});
  const auto bytes = checked_product({row_blocks, traits->block_bytes, dims[1], dims[2], dims[3]});
  if (!elements || !bytes) {
    return error(StatusCode::corrupt_data, "dimensions ", dims[0], " x ", dims[1], " x ", dims[2], " x ", dims[3],
                 " overflow a 64-bit size");
  }
  return *bytes;
}

Status check_name(std::string_view name) {
  if (name.empty()) return error(StatusCode::corrupt_data, "a tensor has an empty name");
  if (static_cast<int64_t>(name.size()) > kMaxTensorNameBytes) {
    return error(StatusCode::corrupt_data, "tensor name ", quoted(name), " has ", name.size(), " bytes, wants at most ",
                 kMaxTensorNameBytes);
  }
  if (has_control_bytes(name)) {
    return error(StatusCode::corrupt_data, "tensor name ", quoted(name), " has control bytes");
  }
  return {};
}

Status check_overlaps(std::span<const TensorInfo> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].file_offset < tensors[b].file_offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = tensors[order[i - 1]];
    const TensorInfo& after = tensors[order[i]];
    if (before.file_offset + before.bytes > after.file_offset) {
      return error(StatusCode::corrupt_data, "tensor ", after.name, " begins at byte ", after.file_offset,
                   ", inside tensor ", before.name, " which ends at byte ", before.file_offset + before.bytes,
                   "; the header is damaged or hostile");
    }
  }
  return {};
}

void attach_data(std::span<TensorInfo> tensors, std::span<const std::byte> file) {
  const auto size = static_cast<int64_t>(file.size());
  for (TensorInfo& tensor : tensors) {
    const bool whole = tensor.bytes <= size && tensor.file_offset <= size - tensor.bytes;
    tensor.data = whole ? file.data() + tensor.file_offset : nullptr;
  }
}

Status index_names(Checkpoint& checkpoint) {
  checkpoint.by_name.reserve(checkpoint.tensors.size());
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const TensorInfo& tensor = checkpoint.tensors[i];
    const auto [first, fresh] = checkpoint.by_name.emplace(tensor.name, i);
    if (fresh) continue;
    const TensorInfo& other = checkpoint.tensors[first->second];
    return error(StatusCode::corrupt_data, "tensor ", tensor.name, " appears twice: in ",
                 checkpoint.files[static_cast<std::size_t>(other.file)].path, " at byte ", other.file_offset,
                 " and in ", checkpoint.files[static_cast<std::size_t>(tensor.file)].path, " at byte ",
                 tensor.file_offset);
  }
  return {};
}

}  // namespace winnow
