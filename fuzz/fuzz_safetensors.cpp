// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a safetensors file, its fp8 scales joined and rows read.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "formats/rows.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/tensor_layout.hpp"

namespace {

using namespace winnow;

void read_ends(const TensorInfo& tensor) {
  const bool scaled = tensor.type != StorageType::E4M3_B128 || tensor.block_scales != nullptr;
  if (tensor.data == nullptr || !traits_of(tensor.type)->decodable || !scaled) return;
  const int64_t rows = tensor.elements() / tensor.dims[0];
  std::vector<float> row(static_cast<std::size_t>(tensor.dims[0]));
  decode_rows(tensor, 0, 1, row.data());
  decode_rows(tensor, rows - 1, 1, row.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  // Float scales are read in place, so the input must lie as aligned as a mapped file does.
  std::vector<double> aligned((size + 7) / 8);
  std::copy_n(data, size, reinterpret_cast<uint8_t*>(aligned.data()));
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(aligned.data()), size);
  Result<safetensors::Header> header = safetensors::parse_header(bytes);
  if (!header.ok()) {
    WINNOW_CHECK(!header.status().message().empty(), "a refusal says why");
    return 0;
  }
  Checkpoint checkpoint;
  checkpoint.files.push_back({"fuzz", static_cast<int64_t>(size), header->wanted_bytes});
  checkpoint.tensors = std::move(header->tensors);
  attach_data(checkpoint.tensors, bytes);
  if (!index_names(checkpoint).ok() || !safetensors::join_scales(checkpoint).ok()) return 0;
  for (const TensorInfo& tensor : checkpoint.tensors) read_ends(tensor);
  return 0;
}
