// SPDX-License-Identifier: Apache-2.0
// Vocabulary: a tokenizer's facts as plain data, read from GGUF metadata (gguf_vocabulary.cpp) or from a tokenizer.json
// (json_vocabulary.cpp). Tokenizer is built from it and knows neither file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.hpp"
#include "formats/metadata.hpp"

namespace winnow {

enum class TokenKind : uint8_t {
  ordinary,  // text becomes it by merging
  added,     // matched literally before pre-tokenising, part of the text ("<think>")
  control,   // the same, not part of the text ("<|user|>")
  unused,    // never produced; decodes to its literal text
};

struct Vocabulary {
  std::vector<std::string> bytes;                           // [id] raw bytes; empty: an id without a token
  std::vector<TokenKind> kinds;                             // [id]
  std::vector<std::pair<std::string, std::string>> merges;  // raw bytes, rank = index
  std::vector<std::string> patterns;                        // pre-tokeniser, applied in sequence
  bool ignore_merges = false;
  int32_t bos = -1;  // to be put in front of a raw prompt
  std::vector<int32_t> stop_tokens;
};

[[nodiscard]] Result<Vocabulary> read_gguf_vocabulary(const gguf::Metadata& metadata);
[[nodiscard]] Result<Vocabulary> read_json_vocabulary(std::string_view tokenizer_json, std::string_view config_json,
                                                      std::string_view generation_config_json,
                                                      std::string_view tokenizer_config_json);

// Merges as files write them, "left right" in the byte alphabet; corrupt_data naming the rank.
[[nodiscard]] Result<std::pair<std::string, std::string>> parse_merge(std::string_view left, std::string_view right,
                                                                      std::size_t rank);
[[nodiscard]] Result<std::pair<std::string, std::string>> parse_merge(std::string_view merge, std::size_t rank);

}  // namespace winnow
