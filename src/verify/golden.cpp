// SPDX-License-Identifier: Apache-2.0
#include "verify/golden.hpp"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "formats/checkpoint.hpp"
#include "formats/json.hpp"

namespace winnow {
namespace {

Status wrong(const TensorInfo& tensor, std::string_view wanted) {
  const char* type = name_of(tensor.type);
  std::string shape;
  for (int32_t i = tensor.rank; i-- > 0;) shape += concat(shape.empty() ? "" : ", ", tensor.dims[i]);
  return error(StatusCode::corrupt_data, "golden tensor ", tensor.name, " is ", type, " [", shape, "], wants ", wanted);
}

// Elements lie unaligned in a safetensors file, hence the copies.
template <class T>
Result<std::vector<T>> read(const TensorInfo& tensor, StorageType type, int32_t rank) {
  if (tensor.type != type || tensor.rank != rank) {
    return wrong(tensor, concat(name_of(type), " with ", rank, rank == 1 ? " dimension" : " dimensions"));
  }
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  if (!values.empty()) std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
  return values;
}

Result<std::vector<int32_t>> read_ids(const TensorInfo& tensor, int32_t rank) {
  if (tensor.type != StorageType::I64) return read<int32_t>(tensor, StorageType::I32, rank);
  WINNOW_TRY_ASSIGN(const std::vector<int64_t> wide, read<int64_t>(tensor, StorageType::I64, rank));
  // An id beyond 32 bits must not wrap into one that the model has.
  for (const int64_t id : wide) {
    if (id < INT32_MIN || id > INT32_MAX) {
      return error(StatusCode::corrupt_data, "golden tensor ", tensor.name, " holds ", id, ", beyond 32 bits");
    }
  }
  return std::vector<int32_t>(wide.begin(), wide.end());
}

Status read_logits(const TensorInfo& tensor, GoldenInput& input) {
  WINNOW_TRY_ASSIGN(input.logits, read<float>(tensor, StorageType::F32, 2));
  input.vocab = tensor.dims[0];
  input.logit_rows = tensor.dims[1];
  if (input.logit_rows > static_cast<int64_t>(input.ids.size())) {
    return wrong(tensor, concat("at most ", input.ids.size(), " rows"));
  }
  for (const float value : input.logits) {
    if (!std::isfinite(value)) return error(StatusCode::corrupt_data, "golden tensor ", tensor.name, " holds ", value);
  }
  return {};
}

Result<GoldenSelection> read_selection(const TensorInfo& tensor, int64_t index, bool by_layer) {
  GoldenSelection selection;
  selection.by_layer = by_layer;
  selection.index = index;
  WINNOW_TRY_ASSIGN(selection.positions, read_ids(tensor, by_layer ? 1 : 2));
  selection.width = tensor.dims[0];
  selection.rows = by_layer ? 1 : tensor.dims[1];
  return selection;
}

Result<GoldenInput> read_numbered(const Checkpoint& file, int j) {
  GoldenInput input;
  input.name = concat("ids", j);
  WINNOW_TRY_ASSIGN(input.ids, read_ids(*file.find(input.name), 1));
  if (const TensorInfo* logits = file.find(concat("logits", j))) {
    WINNOW_TRY(read_logits(*logits, input));
    if (input.logit_rows != static_cast<int64_t>(input.ids.size())) {
      return wrong(*logits, concat(input.ids.size(), " rows"));
    }
  }
  for (int i = 0;; ++i) {
    const TensorInfo* tensor = file.find(concat("topk", j, "_full", i));
    if (tensor == nullptr) break;
    WINNOW_TRY_ASSIGN(GoldenSelection selection, read_selection(*tensor, i, false));
    if (selection.rows != static_cast<int64_t>(input.ids.size()))
      return wrong(*tensor, concat(input.ids.size(), " rows"));
    input.selections.push_back(std::move(selection));
  }
  if (const TensorInfo* greedy = file.find(concat("greedy", j))) {
    WINNOW_TRY_ASSIGN(input.greedy, read_ids(*greedy, 1));
  }
  return input;
}

Result<GoldenInput> read_text(const Checkpoint& file) {
  GoldenInput input;
  input.name = "text";
  WINNOW_TRY_ASSIGN(input.ids, read_ids(*file.find("text_ids"), 1));
  if (const TensorInfo* logits = file.find("text_logits_last4")) WINNOW_TRY(read_logits(*logits, input));
  if (const TensorInfo* argmax = file.find("text_argmax")) {
    WINNOW_TRY_ASSIGN(input.argmax, read_ids(*argmax, 1));
    if (input.argmax.size() != input.ids.size()) return wrong(*argmax, concat(input.ids.size(), " entries"));
  }
  if (const TensorInfo* nll = file.find("text_nll")) {
    WINNOW_TRY_ASSIGN(input.nll, read<float>(*nll, StorageType::F32, 1));
    if (input.nll.size() + 1 != input.ids.size()) return wrong(*nll, concat(input.ids.size() - 1, " entries"));
  }
  // Layers that share a list have none of their own, so that the numbers may have gaps.
  for (const TensorInfo& tensor : file.tensors) {
    int layer = 0, consumed = 0;
    if (std::sscanf(tensor.name.c_str(), "text_topk_l%d_last%n", &layer, &consumed) != 1 || layer < 0) continue;
    if (consumed != static_cast<int>(tensor.name.size())) continue;
    WINNOW_TRY_ASSIGN(GoldenSelection selection, read_selection(tensor, layer, true));
    input.selections.push_back(std::move(selection));
  }
  return input;
}

Status read_list(const nlohmann::json& entry, const char* key, std::vector<int32_t>& out) {
  const nlohmann::json* list = member(entry, key);
  if (list == nullptr || !list->is_array() || list->empty()) {
    return error(StatusCode::corrupt_data, "\"", key, "\" is missing, empty or no list");
  }
  for (const nlohmann::json& value : *list) {
    const bool fits = value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX;
    if (!fits) return error(StatusCode::corrupt_data, "\"", key, "\" holds ", value.dump(), ", which is no token id");
    out.push_back(value.get<int32_t>());
  }
  return {};
}

}  // namespace

Result<Golden> read_golden(const std::string& path) {
  WINNOW_TRY_ASSIGN(const Checkpoint file, open_checkpoint(path));
  WINNOW_TRY(file.require_data());
  Golden golden;
  for (int j = 0; file.find(concat("ids", j)) != nullptr; ++j) {
    auto input = read_numbered(file, j);
    if (!input.ok()) return std::move(input).status().in(path);
    golden.inputs.push_back(std::move(input).value());
  }
  if (file.find("text_ids") != nullptr) {
    auto input = read_text(file);
    if (!input.ok()) return std::move(input).status().in(path);
    golden.inputs.push_back(std::move(input).value());
  }
  for (const GoldenInput& input : golden.inputs) {
    if (input.ids.empty()) return error(StatusCode::corrupt_data, path, ": the input ", input.name, " has no tokens");
  }
  if (golden.inputs.empty()) {
    return error(StatusCode::not_found, path,
                 ": has neither ids0 nor text_ids, so it is no golden file; see winnow verify --help");
  }
  return golden;
}

Status read_generations(std::string_view json, Golden& golden) {
  WINNOW_TRY_ASSIGN(const nlohmann::json list, parse_json(json));
  if (!list.is_array()) return error(StatusCode::corrupt_data, "the list of generations is no JSON array");
  for (const nlohmann::json& entry : list) {
    GoldenGeneration generation;
    generation.name = concat("generation ", golden.generations.size());
    WINNOW_TRY(read_list(entry, "prompt_ids", generation.prompt).in(generation.name));
    WINNOW_TRY(read_list(entry, "greedy_ids", generation.greedy).in(generation.name));
    generation.code = string_member(entry, "expect_code");
    golden.generations.push_back(std::move(generation));
  }
  return {};
}

}  // namespace winnow
