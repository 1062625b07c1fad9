// SPDX-License-Identifier: Apache-2.0
// Checkpoint: a model on disk, whatever the container. Bytes become named tensors; no model is known here.
//
// A path may be a .gguf file, any shard of a split GGUF, a .safetensors file, its index, or a checkpoint folder.
// Tensors are views into memory-mapped files that the Checkpoint owns: keep it alive as long as they are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.hpp"
#include "formats/metadata.hpp"
#include "formats/storage.hpp"

namespace winnow {

struct TensorInfo {
  std::string name;
  StorageType type = StorageType::F32;
  int32_t rank = 0;
  // GGUF order: dims[0] is the contiguous row length. A safetensors [out, in] matrix has dims {in, out}. Unused: 1.
  std::array<int64_t, 4> dims{1, 1, 1, 1};
  const std::byte* data = nullptr;  // null when the file does not hold the tensor's bytes (header-only files)
  int64_t bytes = 0;
  int64_t file_offset = 0;  // of the first byte in its file
  int32_t file = 0;         // index into Checkpoint::files
  // E4M3_B128 only: [ceil(dims[1] / 128)][ceil(dims[0] / 128)] fp32, multiplied on.
  const float* block_scales = nullptr;
  [[nodiscard]] int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

enum class ContainerFormat { gguf, safetensors };

struct CheckpointFile {
  std::string path;
  int64_t bytes = 0;         // on disk
  int64_t wanted_bytes = 0;  // what its header promises
};

class MappedFile;  // formats/mapped_file.hpp

struct Checkpoint {
  ContainerFormat format = ContainerFormat::gguf;
  std::string path;  // as the user gave it
  std::vector<CheckpointFile> files;
  std::vector<TensorInfo> tensors;     // file order
  gguf::Metadata metadata;             // gguf: of the first shard
  std::string config_json;             // safetensors: config.json beside the weights
  std::string generation_config_json;  // or empty
  std::string tokenizer_json;          // or empty
  std::string tokenizer_config_json;   // or empty
  std::string chat_template;           // from metadata or tokenizer_config.json or chat_template.jinja; or empty

  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  [[nodiscard]] int64_t missing_bytes() const;  // bytes that the headers promise and the files lack
  // io_error naming the file, the bytes it has and lacks, and the likely cause (incomplete download, header only).
  [[nodiscard]] Status require_data() const;

  std::vector<std::shared_ptr<MappedFile>> mappings;     // [files] what tensors and block_scales point into
  std::unordered_map<std::string, std::size_t> by_name;  // index into tensors; filled by index_names()
};

// Reads headers; maps data. Succeeds on files whose tensor data is cut off, so that plan and inspect work on a header:
// call require_data() before reading tensors. Every size is computed with overflow checks; overlapping, misaligned or
// absurd tensors, a wrong magic, a missing shard, a foreign byte order: corrupt_data or not_found, naming tensor, byte
// and likely cause.
[[nodiscard]] Result<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace winnow
