// SPDX-License-Identifier: Apache-2.0
#include "formats/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

#include "formats/foreign.hpp"
#include "formats/gguf/open.hpp"
#include "formats/mapped_file.hpp"
#include "formats/safetensors/open.hpp"

namespace winnow {
namespace {

namespace fs = std::filesystem;

// The first tensor that a file promises and does not hold whole; null when all are there.
const TensorInfo* first_missing(const Checkpoint& checkpoint, std::size_t file) {
  const TensorInfo* first = nullptr;
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (tensor.file != static_cast<int32_t>(file) || tensor.data != nullptr) continue;
    if (first == nullptr || tensor.file_offset < first->file_offset) first = &tensor;
  }
  return first;
}

bool holds_any_tensor(const Checkpoint& checkpoint, std::size_t file) {
  return std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                     [&](const TensorInfo& t) { return t.file == static_cast<int32_t>(file) && t.data != nullptr; });
}

// GGUF files of a folder that holds no safetensors: the only one, or the first shard of the only set.
Result<std::string> gguf_in_folder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code failed;
  for (fs::directory_iterator i(folder, failed), end; !failed && i != end; i.increment(failed)) {
    const std::string path = i->path().string();
    if (i->path().extension() != ".gguf") continue;
    const auto shard = gguf::shard_of_name(path);
    if (!shard || shard->number == 1) found.push_back(path);
  }
  if (found.empty()) {
    return error(StatusCode::not_found, folder,
                 ": holds no model; wants model.safetensors, model.safetensors.index.json "
                 "with its shards, or one .gguf file");
  }
  if (found.size() > 1) {
    std::sort(found.begin(), found.end());
    return error(StatusCode::invalid_argument, folder, ": holds several GGUF models (", found[0], ", ", found[1],
                 found.size() > 2 ? ", …" : "", "); name one of them");
  }
  return found.front();
}

bool ends_with(const std::string& text, std::string_view end) { return std::string_view(text).ends_with(end); }

}  // namespace

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = by_name.find(std::string(name));
  return found == by_name.end() ? nullptr : &tensors[found->second];
}

int64_t Checkpoint::missing_bytes() const {
  int64_t missing = 0;
  for (const CheckpointFile& file : files) missing += std::max<int64_t>(file.wanted_bytes - file.bytes, 0);
  return missing;
}

Status Checkpoint::require_data() const {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const TensorInfo* tensor = first_missing(*this, i);
    if (tensor == nullptr) continue;
    const CheckpointFile& file = files[i];
    return error(StatusCode::io_error, file.path, ": tensor ", tensor->name, " ends at byte ",
                 tensor->file_offset + tensor->bytes, " but the file has ", file.bytes, " of ", file.wanted_bytes,
                 " bytes: ", file.wanted_bytes - file.bytes, " are missing; ",
                 holds_any_tensor(*this, i) ? "is the download complete?"
                                            : "it is a header without tensor data, good for plan and inspect only");
  }
  return {};
}

Result<Checkpoint> open_checkpoint(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) {
    const bool has_safetensors = safetensors::in_folder(path);
    if (has_safetensors) return safetensors::open(path);
    WINNOW_TRY_ASSIGN(const std::string file, gguf_in_folder(path));
    WINNOW_TRY_ASSIGN(Checkpoint checkpoint, gguf::open(file));
    checkpoint.path = path;
    return checkpoint;
  }
  if (ends_with(path, ".gguf")) return gguf::open(path);
  if (ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json")) return safetensors::open(path);
  WINNOW_TRY_ASSIGN(const auto file, MappedFile::open(path));
  if (looks_like_gguf(file->bytes())) return gguf::open(path);
  if (looks_like_safetensors(file->bytes())) return safetensors::open(path);
  return error(StatusCode::corrupt_data, path,
               ": wants a .gguf file, a .safetensors file or its index, or a checkpoint folder; "
               "this is ",
               likely_kind(file->bytes()));
}

}  // namespace winnow
