// SPDX-License-Identifier: Apache-2.0
// Vocabulary from the tokenizer.json of Hugging Face tokenizers: the byte-level BPE subset that GLM and DeepSeek use.
// What changes ids and is not implemented is refused by name; what does not is ignored.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/json.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/vocabulary.hpp"

namespace winnow {
namespace {

using nlohmann::json;

// Far above any vocabulary: an id beyond it is a broken file, not a reason to allocate.
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

// The pattern of ByteLevel with use_regex (GPT-2's).
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <class... Args>
Status refuse(const Args&... args) {
  return error(StatusCode::unsupported, args..., ", which this program does not implement");
}

// Members of objects of any shape: absent, null and wrongly typed all give the fallback.
std::string text_at(const json& object, const char* key, const char* fallback = "") {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && at != object.end() && at->is_string() ? at->get<std::string>() : fallback;
}
bool flag_at(const json& object, const char* key) {
  if (!object.is_object()) return false;
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}
const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

Result<json> parse(std::string_view text, const char* file) {
  Result<json> document = parse_json(text);
  if (!document.ok()) return std::move(document).status().in(file);
  if (!document->is_object()) {
    return error(StatusCode::corrupt_data, file, " is not a JSON object; is the download complete?");
  }
  return document;
}

Result<int32_t> checked_id(const json& value, std::string_view what) {
  if (!value.is_number_integer()) return error(StatusCode::corrupt_data, what, " has an id that is no integer");
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() >= static_cast<uint64_t>(kMaxVocabulary);
  const int64_t id = huge ? kMaxVocabulary : value.get<int64_t>();
  if (id < 0 || id >= kMaxVocabulary) {
    return error(StatusCode::corrupt_data, what, " has id ", value.dump(), ", ids lie in [0, ", kMaxVocabulary, ")");
  }
  return static_cast<int32_t>(id);
}

void place(Vocabulary& out, int32_t id, std::string bytes, TokenKind kind) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= out.bytes.size()) {
    out.bytes.resize(at + 1);
    out.kinds.resize(at + 1, TokenKind::unused);
  }
  out.bytes[at] = std::move(bytes);
  out.kinds[at] = kind;
}

// A vocabulary with few tokens and one far id would make a huge table of nothing.
Status check_density(int32_t id, std::size_t tokens) {
  if (static_cast<std::size_t>(id) <= 2 * tokens + 65536) return {};
  return error(StatusCode::corrupt_data, "the vocabulary has ", tokens, " tokens but an id ", id);
}

Status read_vocab(const json& model, Vocabulary& out) {
  const json* vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return error(StatusCode::corrupt_data, "model.vocab is missing or empty");
  }
  for (const auto& [text, value] : vocab->items()) {
    WINNOW_TRY_ASSIGN(const int32_t id, checked_id(value, "a token of model.vocab"));
    WINNOW_TRY(check_density(id, vocab->size()));
    if (static_cast<std::size_t>(id) < out.bytes.size() && !out.bytes[static_cast<std::size_t>(id)].empty()) {
      return error(StatusCode::corrupt_data, "two tokens of model.vocab have id ", id);
    }
    auto bytes = bytes_from_alphabet(text);
    place(out, id, std::move(bytes).value_or(text), TokenKind::ordinary);
  }
  return {};
}

Status read_merges(const json& model, Vocabulary& out) {
  const json* merges = member(model, "merges");
  if (merges == nullptr) return {};
  if (!merges->is_array()) return error(StatusCode::corrupt_data, "model.merges is no array");
  out.merges.reserve(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const json& merge = (*merges)[rank];
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) {
      return error(StatusCode::corrupt_data, "merge ", rank, " is neither \"a b\" nor [\"a\", \"b\"]");
    }
    auto parsed =
        pair ? parse_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank)
             : parse_merge(merge.get_ref<const std::string&>(), rank);
    if (!parsed.ok()) return std::move(parsed).status();
    out.merges.push_back(std::move(parsed).value());
  }
  return {};
}

Status read_model(const json& document, Vocabulary& out) {
  const json* model = member(document, "model");
  if (model == nullptr || !model->is_object())
    return error(StatusCode::corrupt_data, "the member \"model\" is missing");
  const std::string type = text_at(*model, "type", "BPE");  // old files leave the type out
  if (type != "BPE") return refuse("model.type is \"", type, "\"");
  if (flag_at(*model, "byte_fallback")) return refuse("model.byte_fallback is true");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_at(*model, key).empty()) return refuse("model.", key, " is \"", text_at(*model, key), "\"");
  }
  out.ignore_merges = flag_at(*model, "ignore_merges");
  WINNOW_TRY(read_vocab(*model, out));
  return read_merges(*model, out);
}

Status read_added_tokens(const json& document, Vocabulary& out) {
  const json* added = member(document, "added_tokens");
  if (added == nullptr) return {};
  if (!added->is_array()) return error(StatusCode::corrupt_data, "added_tokens is no array");
  const std::size_t vocab_tokens = out.bytes.size();
  for (const json& token : *added) {
    const std::string content = text_at(token, "content");
    const json* id_value = member(token, "id");
    if (content.empty() || id_value == nullptr) {
      return error(StatusCode::corrupt_data, "an entry of added_tokens lacks its content or its id");
    }
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (flag_at(token, flag)) return refuse("added token \"", content, "\" has ", flag, " set");
    }
    WINNOW_TRY_ASSIGN(const int32_t id, checked_id(*id_value, "an added token"));
    WINNOW_TRY(check_density(id, vocab_tokens + added->size()));
    place(out, id, content, flag_at(token, "special") ? TokenKind::control : TokenKind::added);
  }
  return {};
}

Status read_normalizer(const json& document) {
  const json* normalizer = member(document, "normalizer");
  if (normalizer == nullptr) return {};
  const json* parts = member(*normalizer, "normalizers");
  if (text_at(*normalizer, "type") == "Sequence" && parts != nullptr && parts->is_array() && parts->empty()) return {};
  return refuse("the normalizer \"", text_at(*normalizer, "type"), "\" is set");
}

// ByteLevel must be there: without it the text is not mapped to the byte alphabet.
Status read_pre_tokenizer(const json& pre, Vocabulary& out, bool& byte_level) {
  const std::string type = text_at(pre, "type");
  if (type == "ByteLevel") {
    if (flag_at(pre, "add_prefix_space")) return refuse("ByteLevel has add_prefix_space set");
    const json* use_regex = member(pre, "use_regex");  // absent means true
    if (use_regex == nullptr || flag_at(pre, "use_regex")) out.patterns.emplace_back(kByteLevelPattern);
    byte_level = true;
    return {};
  }
  if (type == "Digits") {
    out.patterns.emplace_back(flag_at(pre, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)");
    return {};
  }
  if (type != "Split") return refuse("the pre-tokenizer \"", type, "\" is used");
  if (text_at(pre, "behavior") != "Isolated")
    return refuse("Split has the behaviour \"", text_at(pre, "behavior"), "\"");
  const json* pattern = member(pre, "pattern");
  const std::string regex = pattern == nullptr ? "" : text_at(*pattern, "Regex");
  if (regex.empty()) return refuse("Split has a pattern that is no Regex");
  out.patterns.push_back(regex);
  return {};
}

Status read_pre_tokenizers(const json& document, Vocabulary& out) {
  const json* pre = member(document, "pre_tokenizer");
  if (pre == nullptr) return error(StatusCode::unsupported, "there is no pre_tokenizer: this is not byte-level BPE");
  bool byte_level = false;
  if (text_at(*pre, "type") != "Sequence") {
    WINNOW_TRY(read_pre_tokenizer(*pre, out, byte_level));
  } else {
    const json* parts = member(*pre, "pretokenizers");
    if (parts == nullptr || !parts->is_array()) {
      return error(StatusCode::corrupt_data, "pre_tokenizer.pretokenizers is no array");
    }
    for (const json& part : *parts) {
      if (byte_level) return refuse("a pre-tokenizer behind ByteLevel is used");
      WINNOW_TRY(read_pre_tokenizer(part, out, byte_level));
    }
  }
  if (!byte_level)
    return error(StatusCode::unsupported, "the pre_tokenizer has no ByteLevel: this is not byte-level BPE");
  return {};
}

// eos_token_id is an integer or a list of them.
void read_stops(const json& config, Vocabulary& out) {
  const json* eos = member(config, "eos_token_id");
  if (eos == nullptr) return;
  const json list = eos->is_array() ? *eos : json::array({*eos});
  for (const json& value : list) {
    if (auto id = checked_id(value, "eos_token_id"); id.ok()) out.stop_tokens.push_back(*id);
  }
}

// A token in tokenizer_config.json is a string or an object with "content".
int32_t id_of_text(const Vocabulary& vocabulary, const json& config, const char* key) {
  const json* value = member(config, key);
  if (value == nullptr) return -1;
  const std::string text = value->is_string() ? value->get<std::string>() : text_at(*value, "content");
  if (text.empty()) return -1;
  for (std::size_t id = vocabulary.bytes.size(); id-- > 0;) {
    if (vocabulary.kinds[id] != TokenKind::ordinary && vocabulary.bytes[id] == text) return static_cast<int32_t>(id);
  }
  return -1;
}

}  // namespace

Result<Vocabulary> read_json_vocabulary(std::string_view tokenizer_json, std::string_view config_json,
                                        std::string_view generation_config_json,
                                        std::string_view tokenizer_config_json) {
  Vocabulary vocabulary;
  {
    WINNOW_TRY_ASSIGN(const json document, parse(tokenizer_json, "this file"));
    WINNOW_TRY(read_model(document, vocabulary));
    WINNOW_TRY(read_added_tokens(document, vocabulary));
    WINNOW_TRY(read_normalizer(document));
    WINNOW_TRY(read_pre_tokenizers(document, vocabulary));
  }
  if (!generation_config_json.empty()) {
    WINNOW_TRY_ASSIGN(const json config, parse(generation_config_json, "generation_config.json"));
    read_stops(config, vocabulary);
  }
  if (!config_json.empty()) {
    WINNOW_TRY_ASSIGN(const json config, parse(config_json, "config.json"));
    read_stops(config, vocabulary);
  }
  if (!tokenizer_config_json.empty()) {
    WINNOW_TRY_ASSIGN(const json config, parse(tokenizer_config_json, "tokenizer_config.json"));
    vocabulary.stop_tokens.push_back(id_of_text(vocabulary, config, "eos_token"));
    if (flag_at(config, "add_bos_token")) vocabulary.bos = id_of_text(vocabulary, config, "bos_token");
  }
  return vocabulary;
}

}  // namespace winnow
