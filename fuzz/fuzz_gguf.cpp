// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a GGUF file. What the header promises is then read, so that a pointer that leaves the
// input is an AddressSanitizer finding.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "formats/gguf/header.hpp"
#include "formats/tensor_layout.hpp"

namespace {

using namespace winnow;

// Every getter on every key; answers do not matter, crashes do.
void ask_everything(const gguf::Metadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    (void)metadata.integer(key).ok();
    (void)metadata.number(key).ok();
    (void)metadata.boolean(key).ok();
    (void)metadata.string(key).ok();
    (void)metadata.integers(key).ok();
    (void)metadata.strings(key);
    (void)metadata.numbers(key);
  }
}

void decode_ends(const TensorInfo& tensor) {
  const StorageTraits& traits = *traits_of(tensor.type);
  if (tensor.data == nullptr || !traits.decodable) return;
  std::vector<float> out(static_cast<std::size_t>(traits.block_elements));
  decode(tensor.type, tensor.data, out.data(), traits.block_elements);
  decode(tensor.type, tensor.data + tensor.bytes - traits.block_bytes, out.data(), traits.block_elements);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  Result<gguf::Header> header = gguf::parse_header(bytes);
  if (!header.ok()) {
    WINNOW_CHECK(!header.status().message().empty(), "a refusal says why");
    return 0;
  }
  WINNOW_CHECK(header->wanted_bytes >= header->header_bytes, header->wanted_bytes);
  attach_data(header->tensors, bytes);
  for (const TensorInfo& tensor : header->tensors) decode_ends(tensor);
  ask_everything(header->metadata);
  return 0;
}
