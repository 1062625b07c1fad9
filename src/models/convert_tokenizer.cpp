// SPDX-License-Identifier: Apache-2.0
// tokenizer.json (Hugging Face tokenizers, byte-level BPE) as tokenizer.ggml.* keys.
//
// GGUF names a pre-tokeniser instead of carrying its pattern, so the pattern must be one of those that have a name:
// anything else would be tokenised differently by whoever reads the file, and is refused.
#include <algorithm>
#include <optional>

#include "core/log.hpp"
#include "formats/json.hpp"
#include "formats/quoted.hpp"
#include "models/convert_metadata.hpp"

namespace winnow {
namespace {

using gguf::Value;
using nlohmann::json;

constexpr int kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

constexpr int64_t kMaxTokens = int64_t{1} << 22;

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int> types;
  [[nodiscard]] std::optional<int64_t> id_of(std::string_view text) const {
    const auto found = std::find(texts.begin(), texts.end(), text);
    if (found == texts.end()) return std::nullopt;
    return found - texts.begin();
  }
};

Status place(Tokens& tokens, const std::string& text, const json* id, int type) {
  if (id == nullptr || !id->is_number_unsigned() || id->get<uint64_t>() >= static_cast<uint64_t>(kMaxTokens)) {
    return error(StatusCode::corrupt_data, "token ", quoted(text), " has no id below ", kMaxTokens);
  }
  const auto at = static_cast<std::size_t>(id->get<uint64_t>());
  if (at >= tokens.texts.size()) {
    tokens.texts.resize(at + 1);
    tokens.types.resize(at + 1, kUnused);
  }
  tokens.texts[at] = text;
  tokens.types[at] = type;
  return {};
}

// Ids that no token has, up to the rows of the embedding, get a placeholder.
void fill_gaps(Tokens& tokens, int64_t vocab) {
  const auto rows = static_cast<std::size_t>(vocab);
  if (tokens.texts.size() < rows) {
    tokens.texts.resize(rows);
    tokens.types.resize(rows, kUnused);
  }
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.types[i] == kUnused) tokens.texts[i] = concat("[PAD", i, "]");
  }
}

Result<Tokens> read_tokens(const json& document, int64_t vocab) {
  const json* model = member(document, "model");
  const json* table = model == nullptr ? nullptr : member(*model, "vocab");
  if (table == nullptr || !table->is_object()) return error(StatusCode::corrupt_data, "model.vocab is no object");
  Tokens tokens;
  for (const auto& [text, id] : table->items()) WINNOW_TRY(place(tokens, text, &id, kNormal));
  if (const json* added = member(document, "added_tokens"); added != nullptr && added->is_array()) {
    for (const json& token : *added) {
      const json* special = member(token, "special");
      const bool control = special != nullptr && special->is_boolean() && special->get<bool>();
      WINNOW_TRY(
          place(tokens, string_member(token, "content"), member(token, "id"), control ? kControl : kUserDefined));
    }
  }
  if (static_cast<int64_t>(tokens.texts.size()) > vocab) {
    return error(StatusCode::corrupt_data, "its highest id is ", tokens.texts.size() - 1, ", but the embedding has ",
                 vocab, " rows; tokenizer and weights are of different models");
  }
  fill_gaps(tokens, vocab);
  return tokens;
}

// "left right" strings in old files, [left, right] in new ones.
Result<std::vector<std::string>> read_merges(const json& document) {
  const json* model = member(document, "model");
  const json* list = model == nullptr ? nullptr : member(*model, "merges");
  std::vector<std::string> merges;
  if (list == nullptr || !list->is_array()) return error(StatusCode::corrupt_data, "model.merges is no array");
  merges.reserve(list->size());
  for (const json& merge : *list) {
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) {
      return error(StatusCode::corrupt_data, "merge ", merges.size(), " is neither a string nor a pair of them");
    }
    merges.push_back(pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>() : merge.get<std::string>());
  }
  return merges;
}

// The patterns of the Split steps, in order.
std::vector<std::string> split_patterns(const json& document) {
  std::vector<std::string> patterns;
  const json* pre = member(document, "pre_tokenizer");
  if (pre == nullptr) return patterns;
  const json* steps = member(*pre, "pretokenizers");
  const json single = json::array({*pre});
  for (const json& step : steps != nullptr && steps->is_array() ? *steps : single) {
    if (string_member(step, "type") != "Split") continue;
    const json* pattern = member(step, "pattern");
    patterns.push_back(pattern == nullptr ? "" : string_member(*pattern, "Regex"));
  }
  return patterns;
}

Result<std::string> pre_tokenizer_name(const json& document) {
  constexpr std::string_view kGlmTail =
      R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kDeepseekTail =
      R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kDigits = R"(\p{N}{1,3})";
  const std::vector<std::string> patterns = split_patterns(document);
  const auto ends = [](const std::string& text, std::string_view end) { return std::string_view(text).ends_with(end); };
  // One pattern: contractions in any case, then the tail.
  const bool contractions = patterns.size() == 1 && (patterns[0].starts_with("(?i:'s|'t|'re|'ve|'m|'ll|'d)|") ||
                                                     patterns[0].starts_with("(?:'[sS]|"));
  if (contractions && ends(patterns[0], kGlmTail)) return std::string("glm4");
  if (patterns.size() == 3 && patterns[0] == kDigits && ends(patterns[2], kDeepseekTail))
    return std::string("deepseek-v3");
  return error(StatusCode::unsupported, "its pre-tokeniser pattern is neither that of glm4 nor that of deepseek-v3",
               patterns.empty() ? "; it has none" : concat("; it begins with ", quoted(patterns[0])));
}

void set_id(gguf::Writer& writer, const char* key, std::optional<int64_t> id) {
  if (id) writer.set(concat("tokenizer.ggml.", key, "_token_id"), Value::of_u32(static_cast<uint32_t>(*id)));
}

// An id of generation_config.json or config.json; the first of a list.
std::optional<int64_t> configured_id(const Checkpoint& checkpoint, std::string_view key, int64_t vocab) {
  for (const std::string* text : {&checkpoint.generation_config_json, &checkpoint.config_json}) {
    const Result<json> config = parse_json(*text);  // absent files are empty text, and no JSON
    if (!config.ok()) continue;
    const json* value = member(*config, key);
    if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
    if (value == nullptr || !value->is_number_unsigned()) continue;
    const auto id = value->get<uint64_t>();
    if (id < static_cast<uint64_t>(vocab)) return static_cast<int64_t>(id);
  }
  return std::nullopt;
}

// GLM ends a turn at <|user|> and a tool call at <|observation|>; its first token is [gMASK], which its prompt shape
// writes itself, so that none is to be added. DeepSeek wants its begin token in front of every prompt.
void set_special_ids(gguf::Writer& writer, const Checkpoint& checkpoint, const Tokens& tokens,
                     const ModelConfig& config, bool glm) {
  const auto end = configured_id(checkpoint, "eos_token_id", config.vocab);
  const auto end_of_text = tokens.id_of("<|endoftext|>");
  const auto pad = configured_id(checkpoint, "pad_token_id", config.vocab);
  if (glm) {
    set_id(writer, "eos", end_of_text ? end_of_text : end);
    set_id(writer, "bos", tokens.id_of("[gMASK]"));
    set_id(writer, "eot", tokens.id_of("<|user|>"));
    set_id(writer, "eom", tokens.id_of("<|observation|>"));
    set_id(writer, "unknown", end_of_text);
    set_id(writer, "padding", pad ? pad : end_of_text);
  } else {
    set_id(writer, "eos", end);
    set_id(writer, "bos", configured_id(checkpoint, "bos_token_id", config.vocab));
    set_id(writer, "padding", pad ? pad : end);
  }
  writer.set("tokenizer.ggml.add_bos_token", Value::of_bool(!glm));
}

}  // namespace

Status set_tokenizer_keys(gguf::Writer& writer, const Checkpoint& checkpoint, const ModelConfig& config,
                          const std::string& chat_template) {
  if (checkpoint.tokenizer_json.empty()) {
    log(LogLevel::warning,
        concat(checkpoint.path, ": has no tokenizer.json; the GGUF gets no vocabulary and takes token ids only"));
  } else {
    Result<json> document = parse_json(checkpoint.tokenizer_json);
    if (!document.ok()) return std::move(document).status().in("tokenizer.json");
    Result<Tokens> tokens = read_tokens(*document, config.vocab);
    if (!tokens.ok()) return std::move(tokens).status().in("tokenizer.json");
    Result<std::vector<std::string>> merges = read_merges(*document);
    if (!merges.ok()) return std::move(merges).status().in("tokenizer.json");
    Result<std::string> pre = pre_tokenizer_name(*document);
    if (!pre.ok()) return std::move(pre).status().in("tokenizer.json");
    writer.set("tokenizer.ggml.model", Value::of_string("gpt2"));
    writer.set("tokenizer.ggml.pre", Value::of_string(*pre));
    writer.set("tokenizer.ggml.tokens", Value::of_strings(tokens->texts));
    writer.set("tokenizer.ggml.token_type",
               Value::of_numbers(gguf::ValueType::i32, {tokens->types.begin(), tokens->types.end()}));
    writer.set("tokenizer.ggml.merges", Value::of_strings(std::move(merges).value()));
    set_special_ids(writer, checkpoint, *tokens, config, *pre == "glm4");
  }
  if (!chat_template.empty()) writer.set("tokenizer.chat_template", Value::of_string(chat_template));
  return {};
}

}  // namespace winnow
