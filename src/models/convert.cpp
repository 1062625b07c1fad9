// SPDX-License-Identifier: Apache-2.0
// Tensors of convert(): each GGUF tensor is a list of pieces of checkpoint tensors, decoded and encoded row by row.
#include "models/convert.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "core/log.hpp"
#include "core/threads.hpp"
#include "formats/gguf/writer.hpp"
#include "formats/rows.hpp"
#include "models/config.hpp"
#include "models/convert_metadata.hpp"
#include "models/hf_names.hpp"
#include "models/tensors.hpp"

namespace winnow {
namespace {

// Floats decoded at once: bounds the memory whatever the tensor.
constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr float kLargestF16 = 65504.0f;

// Rows of one checkpoint tensor. transposed: [rows][columns] is written as [columns][rows].
struct Piece {
  const TensorInfo* tensor = nullptr;
  int64_t first_row = 0, rows = 0;
  bool transposed = false;
};

struct Output {
  std::string name;
  std::vector<int64_t> dims;  // contiguous first
  StorageType type = StorageType::F32;
  std::vector<Piece> pieces;
};

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

// Small and sensitive tensors stay F32: readers want norms and biases so, and rounding the router or the index
// projection changes which experts and tokens are picked.
bool stays_f32(const Output& out) {
  return out.dims.size() == 1 || ends_with(out.name, ".ffn_gate_inp.weight") ||
         ends_with(out.name, ".indexer.proj.weight");
}

StorageType type_of(const Output& out, StorageType weights) {
  if (stays_f32(out)) return StorageType::F32;
  if (out.dims[0] % traits_of(weights)->block_elements == 0) return weights;
  return out.pieces.front().tensor->type == StorageType::F16 ? StorageType::F16 : StorageType::BF16;
}

Piece whole(const TensorInfo& tensor) { return {&tensor, 0, tensor.dims[1] * tensor.dims[2] * tensor.dims[3], false}; }

class Plan {
 public:
  Plan(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), config_(config) {}

  // Groups the checkpoint's tensors by the GGUF tensor they belong to, in the order of the layers.
  Status build(StorageType weights) {
    for (const TensorInfo& tensor : checkpoint_.tensors) {
      if (ends_with(tensor.name, "_scale_inv")) continue;  // consumed with its fp8 tensor
      const auto name = canonical_name(tensor.name);
      if (!name) {
        left_out_.push_back(tensor.name);
      } else if (name->expert >= 0) {
        experts_[name->name][name->expert] = &tensor;
      } else if (ends_with(name->name, ".attn_kv_b.weight")) {
        WINNOW_TRY(split_kv_b(tensor, name->name));
      } else {
        add(name->name, tensor);
      }
      if (name && name->layer >= config_.layers) extra_layers_.insert(name->layer);
    }
    for (const auto& [name, stack] : experts_) WINNOW_TRY(add_stack(name, stack));
    sort();
    for (Output& out : outputs_) out.type = type_of(out, weights);
    return check_extra_layers();
  }

  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }
  [[nodiscard]] int64_t nextn_layers() const { return static_cast<int64_t>(extra_layers_.size()); }

 private:
  void add(const std::string& name, const TensorInfo& tensor) {
    Output out{name, {}, StorageType::F32, {whole(tensor)}};
    out.dims.assign(tensor.dims.begin(), tensor.dims.begin() + std::max(tensor.rank, 1));
    outputs_.push_back(std::move(out));
  }

  // kv_b_proj [heads * (nope + v), latent]: per head nope rows of keys, then v rows of values. Keys are stored
  // transposed, [heads][latent][nope], so that absorbing them into the query is a plain product.
  Status split_kv_b(const TensorInfo& tensor, const std::string& name) {
    const int64_t heads = config_.heads, nope = config_.head_nope, v = config_.head_v, latent = config_.kv_lora;
    if (tensor.rank != 2 || tensor.dims[0] != latent || tensor.dims[1] != heads * (nope + v)) {
      return error(StatusCode::corrupt_data, "tensor ", tensor.name, " is [", tensor.dims[1], ", ", tensor.dims[0],
                   "], wants [", heads * (nope + v), ", ", latent, "]");
    }
    const std::string stem = name.substr(0, name.size() - std::string_view("kv_b.weight").size());
    Output keys{stem + "k_b.weight", {nope, latent, heads}, StorageType::F32, {}};
    Output values{stem + "v_b.weight", {latent, v, heads}, StorageType::F32, {}};
    for (int64_t h = 0; h < heads; ++h) {
      keys.pieces.push_back({&tensor, h * (nope + v), nope, true});
      values.pieces.push_back({&tensor, h * (nope + v) + nope, v, false});
    }
    outputs_.push_back(std::move(keys));
    outputs_.push_back(std::move(values));
    return {};
  }

  Status add_stack(const std::string& name, const std::map<int64_t, const TensorInfo*>& stack) {
    const TensorInfo& first = *stack.begin()->second;
    Output out{name, {first.dims[0], first.dims[1], config_.experts}, StorageType::F32, {}};
    for (int64_t e = 0; e < config_.experts; ++e) {
      const auto found = stack.find(e);
      if (found == stack.end()) {
        return error(StatusCode::not_found, "tensor ", hf_name(name, e).value_or(name), " is missing");
      }
      if (found->second->dims != first.dims) {
        return error(StatusCode::corrupt_data, "tensor ", found->second->name, " is shaped unlike ", first.name);
      }
      out.pieces.push_back(whole(*found->second));
    }
    if (static_cast<int64_t>(stack.size()) != config_.experts) {
      return error(StatusCode::corrupt_data, "tensor ", stack.rbegin()->second->name, ": config.json speaks of ",
                   config_.experts, " experts");
    }
    outputs_.push_back(std::move(out));
    return {};
  }

  // Global tensors first, then layer by layer, within a layer by name: the file does not depend on the shards' order.
  void sort() {
    const auto layer_of = [](const Output& out) {
      return out.name.starts_with("blk.") ? std::atoll(out.name.c_str() + 4) : -1;
    };
    std::sort(outputs_.begin(), outputs_.end(), [&](const Output& a, const Output& b) {
      const auto la = layer_of(a), lb = layer_of(b);
      return la != lb ? la < lb : a.name < b.name;
    });
  }

  // MTP layers follow the main ones without a gap.
  [[nodiscard]] Status check_extra_layers() const {
    if (extra_layers_.empty() || *extra_layers_.rbegin() == config_.layers + nextn_layers() - 1) return {};
    return error(StatusCode::corrupt_data, "there are tensors of layer ", *extra_layers_.rbegin(),
                 ", but the model has ", config_.layers, " layers and ", nextn_layers(), " behind them");
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<Output> outputs_;
  std::map<std::string, std::map<int64_t, const TensorInfo*>> experts_;
  std::vector<std::string> left_out_;
  std::set<int64_t> extra_layers_;
};

// Encodes rows [rows][columns] and appends them. Rows are independent, so threads share them.
class Encoder {
 public:
  Encoder(gguf::Writer& writer, const Output& out) : writer_(writer), out_(out), traits_(*traits_of(out.type)) {}

  Status append(const float* values, int64_t rows, int64_t columns) {
    const int64_t row_bytes = columns / traits_.block_elements * traits_.block_bytes;
    encoded_.resize(static_cast<std::size_t>(rows * row_bytes));
    Status failure;
    std::mutex guard;
    parallel_for(rows, std::max<int64_t>(1, 65536 / columns), [&](int64_t begin, int64_t end, int) {
      Status status =
          encode_rows(values + begin * columns, encoded_.data() + begin * row_bytes, (end - begin) * columns);
      const std::lock_guard lock(guard);
      if (!status.ok() && failure.ok()) failure = std::move(status);
    });
    if (!failure.ok()) return std::move(failure).in(concat("tensor ", out_.name));
    return writer_.append(encoded_);
  }

 private:
  Status encode_rows(const float* values, std::byte* to, int64_t elements) const {
    if (out_.type == StorageType::F16) {
      const bool too_large = std::any_of(values, values + elements,
                                         [](float x) { return std::isfinite(x) && std::fabs(x) > kLargestF16; });
      if (too_large)
        return error(StatusCode::unsupported, "a value exceeds 65504, the largest of f16; use bf16 or f32");
    }
    return encode(out_.type, values, to, elements);
  }

  gguf::Writer& writer_;
  const Output& out_;
  const StorageTraits& traits_;
  std::vector<std::byte> encoded_;
};

// A transposed piece is one head: nope x latent, small enough to hold.
Status write_transposed(Encoder& encoder, const Piece& piece, std::vector<float>& values) {
  const int64_t rows = piece.rows, columns = piece.tensor->dims[0];
  values.resize(static_cast<std::size_t>(rows * columns));
  decode_rows(*piece.tensor, piece.first_row, rows, values.data());
  std::vector<float> turned(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      turned[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * columns + c)];
  }
  return encoder.append(turned.data(), columns, rows);
}

Status check_wanted(const ConvertOptions& options) {
  if (!options.cancelled || !options.cancelled()) return {};
  return error(StatusCode::cancelled, "interrupted; nothing was written");
}

Status write_tensor(gguf::Writer& writer, const Output& out, const ConvertOptions& options,
                    std::vector<float>& values) {
  Encoder encoder(writer, out);
  for (const Piece& piece : out.pieces) {
    WINNOW_TRY(check_wanted(options));
    if (piece.transposed) {
      WINNOW_TRY(write_transposed(encoder, piece, values));
      continue;
    }
    const int64_t columns = piece.tensor->dims[0];
    const int64_t at_once = std::max<int64_t>(1, kChunkElements / columns);
    for (int64_t row = 0; row < piece.rows; row += at_once) {
      WINNOW_TRY(check_wanted(options));
      const int64_t rows = std::min(at_once, piece.rows - row);
      values.resize(static_cast<std::size_t>(rows * columns));
      decode_rows(*piece.tensor, piece.first_row + row, rows, values.data());
      WINNOW_TRY(encoder.append(values.data(), rows, columns));
    }
  }
  return {};
}

Status check_source(const Checkpoint& checkpoint, StorageType weights) {
  if (checkpoint.format != ContainerFormat::safetensors) {
    return error(StatusCode::invalid_argument, checkpoint.path,
                 ": is a GGUF file already; convert takes a safetensors checkpoint");
  }
  if (weights != StorageType::F32 && weights != StorageType::F16 && weights != StorageType::BF16 &&
      weights != StorageType::Q8_0) {
    return error(StatusCode::unsupported, "convert: type ", name_of(weights),
                 " is not built, wants F32, F16, BF16 or Q8_0");
  }
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (!traits_of(tensor.type)->decodable && canonical_name(tensor.name)) {
      return error(StatusCode::unsupported, "tensor ", tensor.name, " has type ", name_of(tensor.type),
                   ", wants F32, F16, BF16 or F8_E4M3");
    }
  }
  return checkpoint.require_data();
}

std::string name_of_model(const Checkpoint& checkpoint, const ConvertOptions& options) {
  if (!options.name.empty()) return options.name;
  const std::filesystem::path file(checkpoint.files.front().path);
  std::error_code failed;
  const std::filesystem::path folder =
      std::filesystem::canonical(file.parent_path().empty() ? "." : file.parent_path(), failed);
  return failed || folder.filename().empty() ? "model" : folder.filename().string();
}

void report_left_out(const std::vector<std::string>& names) {
  if (names.empty()) return;
  log(LogLevel::warning,
      concat("convert: ", names.size(), " tensors have no place in the GGUF and are left out, first ", names[0]));
}

// Renaming the finished file over a device or a pipe would replace it, and over a folder it fails after hours.
Status check_target(const std::string& out_path) {
  if (out_path.empty()) return error(StatusCode::invalid_argument, "the name of the file to write is empty");
  std::error_code failed;
  const std::filesystem::file_status there = std::filesystem::status(out_path, failed);
  if (std::filesystem::is_directory(there)) {
    return error(StatusCode::invalid_argument, out_path, ": is a folder; name a file in it");
  }
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    return error(StatusCode::invalid_argument, out_path, ": is a device, pipe or socket; name a regular file");
  }
  return {};
}

// Tensor files, and what stands beside them and cannot be had back either.
Status check_not_a_source(const Checkpoint& checkpoint, const std::string& out_path) {
  std::vector<std::string> sources;
  for (const CheckpointFile& file : checkpoint.files) sources.push_back(file.path);
  const std::filesystem::path folder = std::filesystem::path(sources.front()).parent_path();
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "model.safetensors.index.json"}) {
    sources.push_back((folder / name).string());
  }
  for (const std::string& source : sources) {
    std::error_code failed;
    if (std::filesystem::equivalent(source, out_path, failed)) {
      return error(StatusCode::invalid_argument, out_path, ": is part of the checkpoint; name another file");
    }
  }
  return {};
}

}  // namespace

Status convert(const Checkpoint& checkpoint, StorageType weights, const std::string& out_path,
               const ConvertOptions& options) {
  WINNOW_TRY(check_source(checkpoint, weights));
  WINNOW_TRY(check_target(out_path));
  WINNOW_TRY(check_not_a_source(checkpoint, out_path));
  WINNOW_TRY_ASSIGN(const ModelConfig config, read_config(checkpoint));
  WINNOW_TRY(report_tensors(checkpoint, config).status());
  Plan plan(checkpoint, config);
  WINNOW_TRY(plan.build(weights));
  report_left_out(plan.left_out());

  gguf::Writer writer(out_path);
  writer.set_progress_name("convert");
  WINNOW_TRY(set_model_keys(writer, config, name_of_model(checkpoint, options), plan.nextn_layers()));
  WINNOW_TRY(set_tokenizer_keys(writer, checkpoint, config,
                                options.chat_template.empty() ? checkpoint.chat_template : options.chat_template));
  for (const Output& out : plan.outputs()) writer.add_tensor(out.name, out.type, out.dims);
  WINNOW_TRY(writer.begin());
  std::vector<float> values;
  for (const Output& out : plan.outputs()) WINNOW_TRY(write_tensor(writer, out, options, values));
  return writer.finish();
}

}  // namespace winnow
