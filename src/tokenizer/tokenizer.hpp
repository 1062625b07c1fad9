// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE tokenizer of GLM and DeepSeek models, from GGUF metadata or from a tokenizer.json.
//
// encode: added tokens ("<|user|>", "<think>") are matched first, literally, the longest wins; the text between them is
// split by the pre-tokeniser's patterns (PCRE2 with Unicode classes); each pre-token's bytes are mapped to the byte
// alphabet and merged, lowest rank first. With ignore_merges (GLM) a whole pre-token found in the vocabulary is taken
// before any merge.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow {

struct Vocabulary;  // tokenizer/vocabulary.hpp

class Tokenizer {
 public:
  // From whichever source the checkpoint has. not_found when it has none, unsupported for another tokenizer model or
  // an unknown pre-tokeniser (named), corrupt_data for a vocabulary that contradicts itself.
  [[nodiscard]] static Result<Tokenizer> load(const Checkpoint& checkpoint);
  [[nodiscard]] static Result<Tokenizer> from_gguf(const gguf::Metadata& metadata);
  // The files of a checkpoint folder as text; the last three may be empty. generation_config.json and config.json name
  // the tokens that end a generation, tokenizer_config.json says whether a bos is put in front.
  [[nodiscard]] static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view config_json,
                                                   std::string_view generation_config_json,
                                                   std::string_view tokenizer_config_json = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // text must be UTF-8: invalid_argument names the first bad byte. special: whether "<|user|>" in the text is the
  // token (prompt shapes) or eight characters (text of a user). literal holds for every added token, those that the
  // file calls ordinary too: DeepSeek's role markers are such. Safe from several threads.
  enum class Special { parse, literal };
  [[nodiscard]] Result<std::vector<int32_t>> encode(std::string_view text, Special special) const;

  // Raw bytes of one token; may be half a character. Special tokens give their literal text. Empty for unknown ids.
  [[nodiscard]] std::string_view bytes_of(int32_t id) const;
  // Always UTF-8: bytes that form no character become U+FFFD. decode(encode(text)) == text.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;

  [[nodiscard]] int32_t vocab_size() const;
  [[nodiscard]] int32_t find(std::string_view special_text) const;  // added tokens only; -1 when there is no such token
  [[nodiscard]] bool is_special(int32_t id) const;                  // control tokens: not part of an answer's text
  [[nodiscard]] const std::vector<int32_t>& stop_tokens() const;    // eos, eot, eom: what ends a generation
  [[nodiscard]] int32_t bos() const;                                // -1 when none is to be added

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  static Result<Tokenizer> build(Vocabulary vocabulary);
  std::unique_ptr<State> state_;
};

// Incremental decoding: feed token bytes, get text that never ends inside a UTF-8 character.
class Utf8Stream {
 public:
  [[nodiscard]] std::string push(std::string_view bytes);
  // What is left at the end: an incomplete character becomes U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  std::string pending_;
};

}  // namespace winnow
