// SPDX-License-Identifier: Apache-2.0
// Vocabulary from GGUF metadata (keys: ggml docs/gguf.md; patterns: the pre-tokeniser that a name stands for).
#include <algorithm>
#include <array>

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocabulary.hpp"

namespace winnow {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// tokenizer.ggml.token_type, ids of ggml.
constexpr int kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5;

// A name in tokenizer.ggml.pre: its patterns, and whether a whole pre-token is looked up before merging.
struct PreTokenizer {
  std::array<std::string_view, 2> names;  // the name and an alias, or empty
  std::vector<std::string> patterns;
  bool ignore_merges;
};

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> table = {
      {{"glm4", "chatglm-bpe"},
       {R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
        R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       true},
      {{"deepseek-v3", ""},
       {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       false},
  };
  return table;
}

Result<const PreTokenizer*> find_pre_tokenizer(const std::string& name) {
  std::string known;
  for (const PreTokenizer& pre : pre_tokenizers()) {
    for (std::string_view alias : pre.names) {
      if (alias.empty()) continue;
      if (alias == name) return &pre;
      known += concat(known.empty() ? "" : ", ", alias);
    }
  }
  return error(StatusCode::unsupported, kPrefix, "pre is \"", name, "\"; this program knows ", known);
}

TokenKind kind_of(double type) {
  if (!(type >= 0 && type <= 255)) return TokenKind::ordinary;  // NaN too: an array of floats has no token types
  switch (static_cast<int>(type)) {
    case kControl:
    case kUnknown: return TokenKind::control;
    case kUserDefined: return TokenKind::added;
    case kUnused: return TokenKind::unused;
    default: return TokenKind::ordinary;
  }
}

Status read_tokens(const gguf::Metadata& metadata, Vocabulary& out) {
  const auto* tokens = metadata.strings(concat(kPrefix, "tokens"));
  if (tokens == nullptr || tokens->empty()) {
    return error(StatusCode::not_found, kPrefix, "tokens is missing: this file carries no vocabulary");
  }
  const auto* types = metadata.numbers(concat(kPrefix, "token_type"));
  if (types != nullptr && types->size() != tokens->size()) {
    return error(StatusCode::corrupt_data, kPrefix, "token_type has ", types->size(), " entries, tokens has ",
                 tokens->size());
  }
  out.bytes.resize(tokens->size());
  out.kinds.resize(tokens->size());
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    const std::string& text = (*tokens)[id];
    if (const auto bad = utf8::first_bad_byte(text)) {
      return error(StatusCode::corrupt_data, kPrefix, "tokens[", id, "] is not UTF-8 at its byte ", *bad);
    }
    out.kinds[id] = types == nullptr ? TokenKind::ordinary : kind_of((*types)[id]);
    // Control and user-defined tokens stand literally in the file, and so does an ordinary one that leaves the
    // alphabet.
    auto bytes = out.kinds[id] == TokenKind::ordinary ? bytes_from_alphabet(text) : std::nullopt;
    out.bytes[id] = std::move(bytes).value_or(text);
  }
  return {};
}

Status read_merges(const gguf::Metadata& metadata, Vocabulary& out) {
  const auto* merges = metadata.strings(concat(kPrefix, "merges"));
  if (merges == nullptr) return {};  // a vocabulary of single bytes
  out.merges.reserve(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    WINNOW_TRY_ASSIGN(auto merge, parse_merge((*merges)[rank], rank));
    out.merges.push_back(std::move(merge));
  }
  return {};
}

// A token id key: absent is -1, a foreign id an error.
Result<int32_t> token_id(const gguf::Metadata& metadata, std::string_view name, std::size_t vocab) {
  const std::string key = concat(kPrefix, name, "_token_id");
  if (metadata.find(key) == nullptr) return -1;
  WINNOW_TRY_ASSIGN(const int64_t id, metadata.integer(key));
  if (id == -1 || id == 0xFFFFFFFF) return -1;  // how writers say "none"
  if (id < 0 || static_cast<uint64_t>(id) >= vocab) {
    return error(StatusCode::corrupt_data, key, " is ", id, ", the vocabulary ends at ", vocab - 1);
  }
  return static_cast<int32_t>(id);
}

}  // namespace

Result<std::pair<std::string, std::string>> parse_merge(std::string_view left, std::string_view right,
                                                        std::size_t rank) {
  auto left_bytes = bytes_from_alphabet(left), right_bytes = bytes_from_alphabet(right);
  if (!left_bytes || !right_bytes || left_bytes->empty() || right_bytes->empty()) {
    return error(StatusCode::corrupt_data, "merge ", rank, " (\"", left.substr(0, 80), "\", \"", right.substr(0, 80),
                 "\") is not a pair of byte-alphabet strings");
  }
  return std::pair(std::move(*left_bytes), std::move(*right_bytes));
}

Result<std::pair<std::string, std::string>> parse_merge(std::string_view merge, std::size_t rank) {
  // The byte alphabet has no space, so that one space is the border.
  const std::size_t space = merge.find(' ');
  if (space == std::string_view::npos) {
    return error(StatusCode::corrupt_data, "merge ", rank, " (\"", merge.substr(0, 80), "\") has no space");
  }
  return parse_merge(merge.substr(0, space), merge.substr(space + 1), rank);
}

Result<Vocabulary> read_gguf_vocabulary(const gguf::Metadata& metadata) {
  const std::string model_key = concat(kPrefix, "model");
  if (metadata.find(model_key) == nullptr) {
    return error(StatusCode::not_found, model_key, " is missing: this file carries no tokenizer");
  }
  WINNOW_TRY_ASSIGN(const std::string model, metadata.string(model_key));
  if (model != "gpt2") {
    return error(StatusCode::unsupported, model_key, " is \"", model,
                 "\"; this program runs byte-level BPE, which files call \"gpt2\"");
  }
  const std::string pre_key = concat(kPrefix, "pre");
  if (metadata.find(pre_key) == nullptr) {
    return error(StatusCode::not_found, pre_key, " is missing: how to split text is unknown; convert the model anew");
  }
  WINNOW_TRY_ASSIGN(const std::string pre_name, metadata.string(pre_key));
  WINNOW_TRY_ASSIGN(const PreTokenizer* pre, find_pre_tokenizer(pre_name));

  Vocabulary vocabulary;
  vocabulary.patterns = pre->patterns;
  vocabulary.ignore_merges = pre->ignore_merges;
  WINNOW_TRY(read_tokens(metadata, vocabulary));
  WINNOW_TRY(read_merges(metadata, vocabulary));
  for (std::string_view name : {"eos", "eot", "eom"}) {
    WINNOW_TRY_ASSIGN(const int32_t id, token_id(metadata, name, vocabulary.bytes.size()));
    if (id >= 0) vocabulary.stop_tokens.push_back(id);
  }
  // Absent add_bos_token means no: GLM's bos is [gMASK], which its prompt shape writes itself.
  const std::string add_bos_key = concat(kPrefix, "add_bos_token");
  if (metadata.find(add_bos_key) != nullptr) {
    WINNOW_TRY_ASSIGN(const bool add_bos, metadata.boolean(add_bos_key));
    if (add_bos) {
      WINNOW_TRY_ASSIGN(vocabulary.bos, token_id(metadata, "bos", vocabulary.bytes.size()));
    }
  }
  return vocabulary;
}

}  // namespace winnow
