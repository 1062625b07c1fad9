// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/open.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "formats/foreign.hpp"
#include "formats/json.hpp"
#include "formats/mapped_file.hpp"
#include "formats/quoted.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/tensor_layout.hpp"
#include "formats/text_file.hpp"

namespace winnow::safetensors {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors", kIndexEnd = ".safetensors.index.json";
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;  // the largest published ones have some 20 MB

// What to open: files by name inside a folder, and the names that an index promises for each (empty: all found).
struct Plan {
  fs::path folder;
  std::vector<std::string> files;
  std::map<std::string, std::vector<std::string>> promised;
};

std::string folder_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? "." : parent.string();
}

std::vector<std::string> names_ending(const std::string& folder, std::string_view end) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator i(folder, failed), last; !failed && i != last; i.increment(failed)) {
    const std::string name = i->path().filename().string();
    if (std::string_view(name).ends_with(end)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// An index must not reach out of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         !has_control_bytes(name);
}

Result<Plan> plan_of_index(const fs::path& index) {
  const std::string place = index.string();
  WINNOW_TRY_ASSIGN(const std::string text, read_text_file(place, kMaxIndexBytes));
  Result<nlohmann::json> parsed = parse_json(text, {.max_depth = 16, .unique_keys_to_depth = 2});
  if (!parsed.ok()) return std::move(parsed).status().in(place);
  const nlohmann::json* map = member(*parsed, "weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return error(StatusCode::corrupt_data, place, ": weight_map is absent or empty; this is no safetensors index");
  }
  Plan plan{.folder = folder_of(index), .files = {}, .promised = {}};
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    if (!is_plain_name(name)) {
      return error(StatusCode::corrupt_data, place, ": tensor ", quoted(tensor), " is in ", quoted(name),
                   ", wants the name of a file in the same folder");
    }
    plan.promised[name].push_back(tensor);
  }
  for (const auto& [name, tensors] : plan.promised) plan.files.push_back(name);
  return plan;
}

struct ShardName {
  std::string prefix, count;  // "model-", "00004"
};

// model-00002-of-00004.safetensors
std::optional<ShardName> shard_of_name(const std::string& name) {
  const auto digits = [&](std::size_t begin, std::size_t size) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                       name.begin() + static_cast<std::ptrdiff_t>(begin + size),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  constexpr std::size_t kTail = 5 + 4 + 5 + kExtension.size();
  if (name.size() <= kTail) return std::nullopt;
  const std::size_t begin = name.size() - kTail;
  if (!digits(begin, 5) || name.substr(begin + 5, 4) != "-of-" || !digits(begin + 9, 5)) return std::nullopt;
  return ShardName{name.substr(0, begin), name.substr(begin + 9, 5)};
}

Result<Plan> plan_of_file(const fs::path& path) {
  const std::string name = path.filename().string();
  Plan alone{.folder = folder_of(path), .files = {name}, .promised = {}};
  for (const std::string& index : names_ending(alone.folder.string(), kIndexEnd)) {
    WINNOW_TRY_ASSIGN(Plan plan, plan_of_index(alone.folder / index));
    if (plan.promised.count(name) > 0) return plan;
  }
  const auto shard = shard_of_name(name);
  if (!shard) return alone;
  alone.files.clear();
  const int count = std::stoi(shard->count);  // five digits
  for (int i = 1; i <= count; ++i) {
    std::string number = std::to_string(i);
    number.insert(0, 5 - number.size(), '0');
    alone.files.push_back(concat(shard->prefix, number, "-of-", shard->count, kExtension));
  }
  return alone;
}

Result<Plan> plan_of_folder(const std::string& folder) {
  const std::vector<std::string> indexes = names_ending(folder, kIndexEnd);
  if (indexes.size() == 1) return plan_of_index(fs::path(folder) / indexes.front());
  if (indexes.size() > 1) {
    return error(StatusCode::invalid_argument, folder, ": holds several checkpoints (", indexes[0], ", ", indexes[1],
                 "); name one index");
  }
  const std::vector<std::string> names = names_ending(folder, kExtension);
  const auto usual = std::find(names.begin(), names.end(), "model.safetensors");
  if (usual != names.end()) return Plan{.folder = folder, .files = {*usual}, .promised = {}};
  if (names.size() == 1) return plan_of_file(fs::path(folder) / names.front());
  const auto shard = names.empty() ? std::nullopt : shard_of_name(names.front());
  if (shard) return plan_of_file(fs::path(folder) / names.front());
  return error(StatusCode::not_found, folder,
               ": wants model.safetensors, an index (model.safetensors.index.json) or one "
               "set of numbered shards; found ",
               names.size(), " .safetensors files");
}

Status take_file(Checkpoint& checkpoint, const Plan& plan, const std::string& name) {
  const std::string path = (plan.folder / name).string();
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (!file.ok() && file.status().code() == StatusCode::not_found && plan.files.size() > 1) {
    return error(StatusCode::not_found, path, ": this shard is missing; the checkpoint has ", plan.files.size(),
                 " and needs all of them in one folder");
  }
  if (!file.ok()) return std::move(file).status();
  Result<Header> header = parse_header((*file)->bytes());
  if (!header.ok()) return std::move(header).status().in(path);
  attach_data(header->tensors, (*file)->bytes());
  for (TensorInfo& tensor : header->tensors) {
    tensor.file = static_cast<int32_t>(checkpoint.files.size());
    checkpoint.tensors.push_back(std::move(tensor));
  }
  checkpoint.files.push_back({path, static_cast<int64_t>((*file)->bytes().size()), header->wanted_bytes});
  checkpoint.mappings.push_back(std::move(file).value());
  return {};
}

Status check_promises(const Checkpoint& checkpoint, const Plan& plan) {
  for (const auto& [file, tensors] : plan.promised) {
    for (const std::string& name : tensors) {
      const TensorInfo* tensor = checkpoint.find(name);
      const std::string wanted = (plan.folder / file).string();
      if (tensor != nullptr && checkpoint.files[static_cast<std::size_t>(tensor->file)].path == wanted) continue;
      return error(StatusCode::corrupt_data, wanted, ": tensor ", quoted(name),
                   " is not in it, but the index says so; files of two checkpoints were mixed");
    }
  }
  return {};
}

// chat_template.jinja, or the field of tokenizer_config.json: a string, or a list of {name, template}.
Result<std::string> chat_template_of(const std::string& tokenizer_config, const std::string& jinja) {
  if (!jinja.empty() || tokenizer_config.empty()) return jinja;
  WINNOW_TRY_ASSIGN(const nlohmann::json config, parse_json(tokenizer_config));
  const nlohmann::json* value = member(config, "chat_template");
  if (value == nullptr) return std::string();
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) return std::string();
  for (const nlohmann::json& choice : *value) {
    if (string_member(choice, "name") == "default") return string_member(choice, "template");
  }
  return std::string();
}

Status read_companions(Checkpoint& checkpoint, const fs::path& folder) {
  const auto read = [&](const char* name, int64_t limit) {
    return read_text_file_if_present((folder / name).string(), limit);
  };
  WINNOW_TRY_ASSIGN(checkpoint.config_json, read("config.json", kMaxConfigBytes));
  WINNOW_TRY_ASSIGN(checkpoint.generation_config_json, read("generation_config.json", kMaxConfigBytes));
  WINNOW_TRY_ASSIGN(checkpoint.tokenizer_json, read("tokenizer.json", kMaxTokenizerBytes));
  WINNOW_TRY_ASSIGN(checkpoint.tokenizer_config_json, read("tokenizer_config.json", kMaxConfigBytes));
  WINNOW_TRY_ASSIGN(const std::string jinja, read("chat_template.jinja", kMaxConfigBytes));
  Result<std::string> text = chat_template_of(checkpoint.tokenizer_config_json, jinja);
  if (!text.ok()) return std::move(text).status().in((folder / "tokenizer_config.json").string());
  checkpoint.chat_template = std::move(text).value();
  return {};
}

Result<Plan> plan_of(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return plan_of_folder(path);
  if (std::string_view(path).ends_with(kIndexEnd)) return plan_of_index(path);
  return plan_of_file(path);
}

}  // namespace

bool in_folder(const std::string& folder) {
  return !names_ending(folder, kExtension).empty() || !names_ending(folder, kIndexEnd).empty();
}

Result<Checkpoint> open(const std::string& path) {
  WINNOW_TRY_ASSIGN(const Plan plan, plan_of(path));
  Checkpoint checkpoint;
  checkpoint.format = ContainerFormat::safetensors;
  checkpoint.path = path;
  for (const std::string& name : plan.files) WINNOW_TRY(take_file(checkpoint, plan, name));
  WINNOW_TRY(index_names(checkpoint));
  WINNOW_TRY(check_promises(checkpoint, plan));
  WINNOW_TRY(join_scales(checkpoint));
  WINNOW_TRY(read_companions(checkpoint, plan.folder));
  return checkpoint;
}

}  // namespace winnow::safetensors
