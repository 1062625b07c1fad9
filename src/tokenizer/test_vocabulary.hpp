// SPDX-License-Identifier: Apache-2.0
// Vocabularies for tests: the demonstration model's, and small ones made by hand.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "formats/metadata.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

inline constexpr const char* kTinyJson = "tests/data/tokenizer/tokenizer.json";
inline constexpr const char* kTinyGolden = "tests/data/tokenizer/golden.json";

inline gguf::Value text_value(std::string text) {
  gguf::Value value;
  value.type = gguf::ValueType::string;
  value.data = std::move(text);
  return value;
}
inline gguf::Value id_value(uint64_t id) {
  gguf::Value value;
  value.type = gguf::ValueType::u32;
  value.data = id;
  return value;
}
inline gguf::Value flag_value(bool flag) {
  gguf::Value value;
  value.type = gguf::ValueType::boolean;
  value.data = flag;
  return value;
}
inline gguf::Value strings_value(std::vector<std::string> strings) {
  gguf::Value value;
  value.type = gguf::ValueType::array;
  value.element_type = gguf::ValueType::string;
  value.strings = std::move(strings);
  return value;
}
inline gguf::Value numbers_value(std::vector<double> numbers) {
  gguf::Value value;
  value.type = gguf::ValueType::array;
  value.element_type = gguf::ValueType::i32;
  value.numbers = std::move(numbers);
  return value;
}

// The 256 characters of the byte alphabet, indexed by byte.
inline std::vector<std::string> byte_characters() {
  std::vector<std::string> out(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int c = own ? byte : next++;
    if (c < 128) {
      out[byte] = std::string(1, static_cast<char>(c));
    } else {
      out[byte] = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
    }
  }
  return out;
}

// A vocabulary of the 256 bytes, then `merged` ("ab" from merge "a b"), then `control`, then `added` tokens.
struct Small {
  std::vector<std::string> merges = {}, control = {}, added = {}, extra = {};
  std::string pre = "glm4";
};
inline gguf::Metadata small_metadata(const Small& small) {
  std::vector<std::string> tokens = byte_characters();
  for (std::string merge : small.merges) {
    merge.erase(merge.find(' '), 1);
    tokens.push_back(merge);
  }
  tokens.insert(tokens.end(), small.extra.begin(), small.extra.end());
  std::vector<double> types(tokens.size(), 1);
  for (const auto& text : small.control) tokens.push_back(text), types.push_back(3);
  for (const auto& text : small.added) tokens.push_back(text), types.push_back(4);
  gguf::Metadata metadata;
  metadata.set("tokenizer.ggml.model", text_value("gpt2"));
  metadata.set("tokenizer.ggml.pre", text_value(small.pre));
  metadata.set("tokenizer.ggml.tokens", strings_value(tokens));
  metadata.set("tokenizer.ggml.token_type", numbers_value(types));
  metadata.set("tokenizer.ggml.merges", strings_value(small.merges));
  return metadata;
}
inline Tokenizer small_tokenizer(const Small& small) {
  auto tokenizer = Tokenizer::from_gguf(small_metadata(small));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

inline Tokenizer tiny_from_json() {
  auto tokenizer = Tokenizer::from_json(read_file(kTinyJson), R"({"eos_token_id": [4086, 4093, 4095]})", "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

}  // namespace winnow::test
