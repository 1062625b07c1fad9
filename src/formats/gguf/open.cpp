// SPDX-License-Identifier: Apache-2.0
// Split files: shards are named <prefix>-%05d-of-%05d.gguf (1-based) and carry split.no (0-based), split.count and
// split.tensors.count. Each is a complete GGUF with its own offsets.
#include "formats/gguf/open.hpp"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "formats/gguf/header.hpp"
#include "formats/mapped_file.hpp"
#include "formats/tensor_layout.hpp"

namespace winnow::gguf {
namespace {

constexpr std::string_view kNo = "split.no", kCount = "split.count", kTensors = "split.tensors.count";

struct Shard {
  std::string path;
  std::shared_ptr<MappedFile> file;
  Header header;
};

Result<Shard> read_shard(const std::string& path) {
  WINNOW_TRY_ASSIGN(auto file, MappedFile::open(path));
  Result<Header> header = parse_header(file->bytes());
  if (!header.ok()) return std::move(header).status().in(path);
  return Shard{path, std::move(file), std::move(header).value()};
}

// Shards that the header speaks of: 1 when it does not.
Result<int64_t> split_count(const Shard& shard) {
  if (shard.header.metadata.find(kCount) == nullptr) return int64_t{1};
  Result<int64_t> count = shard.header.metadata.integer(kCount);
  if (!count.ok()) return std::move(count).status().in(shard.path);
  if (*count < 0 || *count > 65535) {
    return error(StatusCode::corrupt_data, shard.path, ": ", kCount, " is ", *count, ", wants 1 to 65535");
  }
  return std::max<int64_t>(*count, 1);
}

// Appends the shard's tensors and takes over its mapping.
void take(Checkpoint& checkpoint, Shard shard) {
  const auto index = static_cast<int32_t>(checkpoint.files.size());
  attach_data(shard.header.tensors, shard.file->bytes());
  for (TensorInfo& tensor : shard.header.tensors) {
    tensor.file = index;
    checkpoint.tensors.push_back(std::move(tensor));
  }
  checkpoint.files.push_back({shard.path, static_cast<int64_t>(shard.file->bytes().size()), shard.header.wanted_bytes});
  checkpoint.mappings.push_back(std::move(shard.file));
  if (index == 0) checkpoint.metadata = std::move(shard.header.metadata);
}

Status check_member(const Shard& shard, int64_t index, int64_t count) {
  Result<int64_t> number = shard.header.metadata.integer(kNo);
  if (!number.ok()) return std::move(number).status().in(shard.path);
  WINNOW_TRY_ASSIGN(const int64_t found_count, split_count(shard));
  if (*number == index && found_count == count) return {};
  return error(StatusCode::corrupt_data, shard.path, ": its header says shard ", *number + 1, " of ", found_count,
               ", its name says ", index + 1, " of ", count, "; files of two models were mixed or renamed");
}

Status check_total(const Checkpoint& checkpoint) {
  if (checkpoint.metadata.find(kTensors) == nullptr) return {};
  WINNOW_TRY_ASSIGN(const int64_t wanted, checkpoint.metadata.integer(kTensors));
  const auto found = static_cast<int64_t>(checkpoint.tensors.size());
  if (found == wanted) return {};
  return error(StatusCode::corrupt_data, checkpoint.files.front().path, ": ", kTensors, " is ", wanted,
               ", but the shards hold ", found, " tensors; files of two models were mixed");
}

// Every shard of a model in the order of their numbers; `given` is the one that was named, read already.
Status read_split(Checkpoint& checkpoint, Shard given, int64_t count) {
  const auto name = shard_of_name(given.path);
  if (!name) {
    return error(StatusCode::invalid_argument, given.path, ": is one of ", count,
                 " shards, but its name does not end in -00001-of-", "NNNNN.gguf, so the others cannot be found; ",
                 "give it back the name it was published under");
  }
  if (name->count != count) return check_member(given, name->number - 1, name->count);
  std::optional<Shard> read_already = std::move(given);
  for (int64_t i = 0; i < count; ++i) {
    const std::string path = name->path(i + 1);
    if (i + 1 == name->number) {
      WINNOW_TRY(check_member(*read_already, i, count));
      take(checkpoint, *std::exchange(read_already, std::nullopt));
      continue;
    }
    std::error_code failed;
    if (!std::filesystem::exists(path, failed)) {
      return error(StatusCode::not_found, path, ": shard ", i + 1, " of ", count, " is missing; ",
                   name->path(name->number), " needs all of them in one folder");
    }
    WINNOW_TRY_ASSIGN(Shard shard, read_shard(path));
    WINNOW_TRY(check_member(shard, i, count));
    take(checkpoint, std::move(shard));
  }
  return check_total(checkpoint);
}

std::optional<int64_t> five_digits(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || failure != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string ShardName::path(int64_t other_number) const {
  char tail[64];
  std::snprintf(tail, sizeof tail, "-%05lld-of-%05lld.gguf", static_cast<long long>(other_number),
                static_cast<long long>(count));
  return prefix + tail;
}

std::optional<ShardName> shard_of_name(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::size_t begin = path.size() - kPattern.size();
  const std::string_view tail = std::string_view(path).substr(begin);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  const auto number = five_digits(tail.substr(1, 5)), count = five_digits(tail.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return ShardName{path.substr(0, begin), *number, *count};
}

Result<Checkpoint> open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.format = ContainerFormat::gguf;
  checkpoint.path = path;
  WINNOW_TRY_ASSIGN(Shard given, read_shard(path));
  WINNOW_TRY_ASSIGN(const int64_t count, split_count(given));
  if (count > 1) {
    WINNOW_TRY(read_split(checkpoint, std::move(given), count));
  } else {
    take(checkpoint, std::move(given));
  }
  WINNOW_TRY(index_names(checkpoint));
  if (auto text = checkpoint.metadata.string("tokenizer.chat_template"); text.ok()) checkpoint.chat_template = *text;
  return checkpoint;
}

}  // namespace winnow::gguf
