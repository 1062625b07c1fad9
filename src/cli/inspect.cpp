// SPDX-License-Identifier: Apache-2.0
// winnow inspect: metadata, tensors, and what the graph of the model lacks or does not use. Reads headers only.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/exit_status.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "core/text.hpp"
#include "formats/json.hpp"
#include "models/config.hpp"
#include "models/tensors.hpp"

namespace winnow::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kShownElements = 8;  // of a metadata array
constexpr std::size_t kShownBytes = 200;   // of a metadata string

struct InspectArguments {
  std::string model;
  bool summary = false, json = false;
};

// What inspect knows: the files always, the graph when the architecture is known.
struct Inspection {
  Checkpoint checkpoint;
  Status graph;  // why there is no report
  ModelConfig config;
  TensorReport report;
};

Result<Inspection> inspect(const std::string& path) {
  Inspection result;
  WINNOW_TRY_ASSIGN(result.checkpoint, open_checkpoint(path));
  auto config = read_config(result.checkpoint);
  result.graph = config.status();
  if (!config.ok()) return result;
  result.config = std::move(config).value();
  result.report = report_tensors(result.checkpoint, result.config);
  return result;
}

std::string type_name(const TensorInfo& tensor) {
  const StorageTraits* traits = traits_of(tensor.type);
  return traits != nullptr ? traits->name : concat("type ", static_cast<uint32_t>(tensor.type));
}

std::string dims_of(const TensorInfo& tensor) {
  std::string text = "[";
  for (int32_t i = 0; i < tensor.rank; ++i) text += concat(i > 0 ? ", " : "", tensor.dims[static_cast<std::size_t>(i)]);
  return text + "]";
}

json scalar_json(const gguf::Value& value) {
  return std::visit(
      [](const auto& data) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, std::vector<gguf::Value>>) {
          return concat(data.size(), " values");
        } else {
          return data;
        }
      },
      value.data);
}

// Packed numbers are doubles whatever they were in the file.
json number_json(gguf::ValueType type, double number) {
  using gguf::ValueType;
  if (type == ValueType::boolean) return number != 0;
  if (type == ValueType::f32 || type == ValueType::f64) return number;
  // u64 values beyond int64_t stay doubles: the conversion would be undefined.
  if (!(std::abs(number) < 9.2e18)) return number;
  return static_cast<int64_t>(number);
}

// Long arrays show their beginning: a vocabulary is not worth 150,000 lines.
json value_json(const gguf::Value& value, bool& cut) {
  if (!value.is_array()) return scalar_json(value);
  json list = json::array();
  const std::size_t count = std::max(value.strings.size(), value.numbers.size());
  for (std::size_t i = 0; i < std::min(count, kShownElements); ++i) {
    if (value.strings.empty()) {
      list.push_back(number_json(value.element_type, value.numbers[i]));
    } else {
      list.push_back(value.strings[i]);
    }
  }
  cut = count > kShownElements;
  return list;
}

std::string value_text(const gguf::Value& value) {
  bool cut = false;
  const json shown = value_json(value, cut);
  std::string text = shown.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kShownBytes) {
    // Cut in front of a character, never inside one.
    std::size_t end = kShownBytes;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  if (!value.is_array()) return text;
  const std::size_t count = std::max(value.strings.size(), value.numbers.size());
  return concat("[", count, "] ", text, cut ? " ..." : "");
}

std::string files_text(const Checkpoint& checkpoint) {
  std::string text = concat(checkpoint.path, ": ", checkpoint.format == ContainerFormat::gguf ? "GGUF" : "safetensors",
                            ", ", checkpoint.files.size(), checkpoint.files.size() == 1 ? " file, " : " files, ",
                            checkpoint.tensors.size(), " tensors\n");
  for (const CheckpointFile& file : checkpoint.files) {
    text += concat("  ", file.path, "  ", short_bytes(file.bytes));
    if (file.wanted_bytes > file.bytes) {
      text +=
          concat(" of ", short_bytes(file.wanted_bytes), " (", file.wanted_bytes - file.bytes, " bytes are missing)");
    }
    text += "\n";
  }
  return text;
}

struct TypeTotal {
  int64_t tensors = 0, bytes = 0;
};
std::map<std::string, TypeTotal> totals_of(const Checkpoint& checkpoint) {
  std::map<std::string, TypeTotal> totals;
  for (const TensorInfo& tensor : checkpoint.tensors) {
    TypeTotal& total = totals[type_name(tensor)];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

std::string tensors_text(const Checkpoint& checkpoint, bool summary) {
  std::string text = "\nTensors by type\n";
  for (const auto& [type, total] : totals_of(checkpoint)) {
    text += concat("  ", type, ": ", total.tensors, " tensors, ", short_bytes(total.bytes), "\n");
  }
  if (summary) return text;
  text += "\nTensors (contiguous dimension first)\n";
  for (const TensorInfo& tensor : checkpoint.tensors) {
    text += concat("  ", tensor.name, "  ", type_name(tensor), "  ", dims_of(tensor), "  ", tensor.bytes, " bytes\n");
  }
  return text;
}

void add_list(std::string& text, const char* title, const std::vector<std::string>& items) {
  if (items.empty()) return;
  text += concat(title, " (", items.size(), ")\n");
  for (const std::string& item : items) text += concat("  ", item, "\n");
}

std::string graph_text(const Inspection& in) {
  if (!in.graph.ok()) return concat("\nNo graph for this file: ", in.graph.message(), "\n");
  const TensorReport& report = in.report;
  const ModelConfig& config = in.config;
  std::string text = concat("\nGraph of ", config.architecture, ": ", config.layers, " layers, hidden ", config.hidden,
                            ", ", config.heads, " heads, latent ", config.kv_lora, " + ", config.head_rope);
  if (config.has_indexer()) {
    text += concat(", index ", config.index_heads, " x ", config.index_dim, " on ", config.full_layers(),
                   " layers, topk ", config.index_topk);
  }
  text += concat(", context ", config.context, "\n  needs ", report.needed.size(), " tensors; here are ",
                 short_bytes(report.needed_bytes), " of them\n");
  add_list(text, "Missing: the graph needs them", report.missing);
  add_list(text, "Wrong", report.wrong_shape);
  add_list(text, "Unused: nothing reads them", report.unused);
  add_list(text, "Left aside: MTP (next-token prediction) layers", report.mtp);
  if (!report.complete()) return text + "INCOMPLETE: this file cannot be run.\n";
  const int64_t missing = in.checkpoint.missing_bytes();
  if (missing > 0) return text + concat("Complete in names and shapes, but ", missing, " bytes of data are missing.\n");
  return text + "Complete: every tensor that the graph needs is here.\n";
}

std::string as_text(const Inspection& in, bool summary) {
  std::string text = files_text(in.checkpoint);
  if (!in.checkpoint.metadata.values().empty()) {
    text += "\nMetadata\n";
    for (const auto& [key, value] : in.checkpoint.metadata.values()) {
      text += concat("  ", key, " = ", value_text(value), "\n");
    }
  }
  return text + tensors_text(in.checkpoint, summary) + graph_text(in);
}

json graph_json(const Inspection& in) {
  if (!in.graph.ok()) return {{"error", in.graph.message()}};
  const TensorReport& report = in.report;
  return {{"architecture", in.config.architecture},
          {"complete", report.complete()},
          {"needed", report.needed.size()},
          {"needed_bytes", report.needed_bytes},
          {"missing", report.missing},
          {"wrong", report.wrong_shape},
          {"unused", report.unused},
          {"mtp", report.mtp}};
}

std::string as_json(const Inspection& in, bool summary) {
  const Checkpoint& checkpoint = in.checkpoint;
  json out = {{"path", checkpoint.path},
              {"format", checkpoint.format == ContainerFormat::gguf ? "gguf" : "safetensors"},
              {"missing_bytes", checkpoint.missing_bytes()},
              {"graph", graph_json(in)}};
  for (const CheckpointFile& file : checkpoint.files) {
    out["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"wanted_bytes", file.wanted_bytes}});
  }
  out["metadata"] = json::object();
  for (const auto& [key, value] : checkpoint.metadata.values()) {
    bool cut = false;
    json shown = value_json(value, cut);
    if (cut) {
      shown = {{"count", std::max(value.strings.size(), value.numbers.size())}, {"first", std::move(shown)}};
    }
    out["metadata"][key] = std::move(shown);
  }
  if (!checkpoint.config_json.empty()) {
    auto config = parse_json(checkpoint.config_json);  // "graph" says what is wrong with one that is no JSON
    out["config"] = config.ok() ? std::move(config).value() : json();
  }
  for (const auto& [type, total] : totals_of(checkpoint)) {
    out["types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (summary) break;
    json dims = json::array();
    for (int32_t i = 0; i < tensor.rank; ++i) dims.push_back(tensor.dims[static_cast<std::size_t>(i)]);
    out["tensors"].push_back(
        {{"name", tensor.name}, {"type", type_name(tensor)}, {"dims", dims}, {"bytes", tensor.bytes}});
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

int inspect_command(const InspectArguments& arguments) {
  const Result<Inspection> result = inspect(arguments.model);
  if (!result.ok()) return fail("inspect", result.status());
  return finish(arguments.json ? as_json(*result, arguments.summary) : printable(as_text(*result, arguments.summary)),
                kOk);
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("inspect", "Show metadata, tensors, and what is unused or missing");
  const auto arguments = std::make_shared<InspectArguments>();
  add_model(*sub, arguments->model);
  sub->add_flag("--summary", arguments->summary, "Leave the list of tensors out");
  add_json(*sub, arguments->json);
  sub->footer(
      "\nReads headers only; works on a file whose tensors are cut off, and says how much is missing.\n"
      "\nExamples:\n"
      "  winnow inspect model.gguf --summary\n"
      "  winnow inspect model-00001-of-00009.gguf --json | jq .graph\n");
  sub->callback([arguments, &action] { action = [arguments] { return inspect_command(*arguments); }; });
}

}  // namespace winnow::cli
