// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <thread>

#include "tokenizer/test_vocabulary.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow {
namespace {

using nlohmann::json;
using test::Small;
using Special = Tokenizer::Special;

constexpr const char* kTinyGguf = "models/winnow-tiny-q8_0.gguf";

Tokenizer tiny_from_gguf() {
  const auto checkpoint = open_checkpoint(kTinyGguf);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  auto tokenizer = Tokenizer::load(*checkpoint);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

void expect_goldens(const Tokenizer& tokenizer) {
  const json golden = json::parse(test::read_file(test::kTinyGolden));
  ASSERT_GE(golden.size(), 10u);
  for (const json& entry : golden) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = tokenizer.encode(text, Special::parse);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer.decode(*ids), text);
  }
}

TEST(Tokenizer, GoldensFromTokenizerJson) { expect_goldens(test::tiny_from_json()); }
TEST(Tokenizer, GoldensFromGguf) { expect_goldens(tiny_from_gguf()); }

TEST(Tokenizer, BothSourcesAgree) {
  const Tokenizer a = test::tiny_from_json(), b = tiny_from_gguf();
  EXPECT_EQ(a.vocab_size(), 4096);
  EXPECT_EQ(b.vocab_size(), 4096);
  EXPECT_EQ(a.stop_tokens(), (std::vector<int32_t>{4086, 4093, 4095}));
  EXPECT_EQ(b.stop_tokens(), a.stop_tokens());
  EXPECT_EQ(a.bos(), -1);
  EXPECT_EQ(b.bos(), -1);
  const std::string text = test::read_file("src/tokenizer/tokenizer_test.cpp");
  const auto from_json = a.encode(text, Special::parse), from_gguf = b.encode(text, Special::parse);
  ASSERT_TRUE(from_json.ok() && from_gguf.ok());
  EXPECT_EQ(*from_json, *from_gguf);
}

TEST(Tokenizer, DecodingUndoesEncodingForAnyText) {
  const Tokenizer tiny = test::tiny_from_json();
  const Tokenizer deepseek = test::small_tokenizer({.added = {"<think>"}, .pre = "deepseek-v3"});
  EXPECT_TRUE(rc::check([&](const std::vector<uint32_t>& code_points, bool parse) {
    std::string text;
    // Mostly small code points, so that letters, spaces and marks meet; all planes are reached.
    for (uint32_t c : code_points) {
      c = c % 3 == 0 ? c % 128 : c % 0x110000;
      utf8::append(text, c >= 0xD800 && c < 0xE000 ? c - 0x800 : c);
    }
    for (const Tokenizer* tokenizer : {&tiny, &deepseek}) {
      const auto ids = tokenizer->encode(text, parse ? Special::parse : Special::literal);
      RC_ASSERT(ids.ok());
      RC_ASSERT(tokenizer->decode(*ids) == text);
    }
  }));
}

TEST(Tokenizer, DecodingAnyIdsGivesUtf8) {
  const Tokenizer tiny = test::tiny_from_json();
  EXPECT_TRUE(rc::check([&](std::vector<int32_t> ids) {
    RC_ASSERT(!utf8::first_bad_byte(tiny.decode(ids)));
    for (int32_t& id : ids) id = static_cast<int32_t>(static_cast<uint32_t>(id) % 4096);
    RC_ASSERT(!utf8::first_bad_byte(tiny.decode(ids)));
  }));
}

TEST(Tokenizer, SpecialTokensAreMatchedFirstAndTheLongestWins) {
  const Tokenizer tokenizer = test::small_tokenizer({.control = {"<a>", "<a><b>", "<b>"}});
  const int32_t a = tokenizer.find("<a>"), ab = tokenizer.find("<a><b>"), b = tokenizer.find("<b>");
  EXPECT_EQ(*tokenizer.encode("<a><b>x<b><a>", Special::parse), (std::vector<int32_t>{ab, 'x', b, a}));
  EXPECT_EQ(tokenizer.encode("<a>", Special::literal)->size(), 3u);
  EXPECT_TRUE(tokenizer.is_special(a));
  EXPECT_FALSE(tokenizer.is_special('x'));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
  EXPECT_EQ(tokenizer.find("<c>"), -1);
  EXPECT_EQ(tokenizer.find("x"), -1);
}

TEST(Tokenizer, AddedTokensThatAreNotSpecialStayText) {
  const Tokenizer tokenizer = test::small_tokenizer({.added = {"<think>"}});
  const int32_t think = tokenizer.find("<think>");
  EXPECT_EQ(*tokenizer.encode("<think>", Special::parse), std::vector<int32_t>{think});
  EXPECT_FALSE(tokenizer.is_special(think));
  EXPECT_EQ(tokenizer.bytes_of(think), "<think>");
}

TEST(Tokenizer, WholePreTokensAreTakenForGlmOnly) {
  // U+0120 is the space: " b" is in the vocabulary and no merge makes it.
  const Small small{.merges = {"b c"}, .extra = {"\u0120bc"}};
  EXPECT_EQ(*test::small_tokenizer(small).encode(" bc", Special::parse), std::vector<int32_t>{257});
  Small other = small;
  other.pre = "deepseek-v3";
  EXPECT_EQ(*test::small_tokenizer(other).encode(" bc", Special::parse), (std::vector<int32_t>{' ', 256}));
}

TEST(Tokenizer, InvalidUtf8NamesTheByte) {
  const auto ids = test::tiny_from_json().encode("abc\xC3(", Special::parse);
  EXPECT_EQ(ids.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(ids.status().message().find("byte 3"), std::string::npos) << ids.status().message();
}

TEST(Tokenizer, AMegabyteOfAnythingEncodes) {
  const Tokenizer tiny = test::tiny_from_json();
  for (const char* unit : {"a", " ", "\n", "<|user|>", "<", "<|", "\u4e00", "9"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto ids = tiny.encode(text, Special::parse);
    ASSERT_TRUE(ids.ok()) << unit << ": " << ids.status().message();
    EXPECT_EQ(tiny.decode(*ids), text);
  }
}

TEST(Tokenizer, SeveralThreadsMayEncode) {
  const Tokenizer tiny = test::tiny_from_json();
  const auto expected = *tiny.encode("The SELECT statement", Special::parse);
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  threads.reserve(same.size());
  for (bool& result : same) {
    threads.emplace_back([&] {
      bool ok = true;
      for (int i = 0; i < 200; ++i) ok = ok && *tiny.encode("The SELECT statement", Special::parse) == expected;
      result = ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (bool result : same) EXPECT_TRUE(result);
}

TEST(Tokenizer, DeepSeekSplitsDigitsThenHanThenTheRest) {
  const Tokenizer tokenizer =
      test::small_tokenizer({.merges = {"1 2", "12 3", "\u00e4 \u00b8", "\u00e4\u00b8 \u0122"}, .pre = "deepseek-v3"});
  EXPECT_EQ(*tokenizer.encode("1234", Special::parse), (std::vector<int32_t>{257, '4'}));
  EXPECT_EQ(*tokenizer.encode("\u4e00", Special::parse), (std::vector<int32_t>{259}));
}

void expect_failure(const gguf::Metadata& metadata, StatusCode code, const char* part) {
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_FALSE(tokenizer.ok()) << part;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  EXPECT_NE(tokenizer.status().message().find(part), std::string::npos) << tokenizer.status().message();
}

TEST(Tokenizer, WrongMetadataIsNamed) {
  expect_failure({}, StatusCode::not_found, "tokenizer.ggml.model");
  gguf::Metadata metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.model", test::text_value("llama"));
  expect_failure(metadata, StatusCode::unsupported, "\"llama\"");
  metadata = test::small_metadata({.pre = "qwen2"});
  expect_failure(metadata, StatusCode::unsupported, "glm4");
  metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.tokens", test::strings_value({}));
  expect_failure(metadata, StatusCode::not_found, "tokens");
  metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.token_type", test::numbers_value({1, 2}));
  expect_failure(metadata, StatusCode::corrupt_data, "token_type has 2");
  metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.merges", test::strings_value({"ab"}));
  expect_failure(metadata, StatusCode::corrupt_data, "merge 0");
  metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.eos_token_id", test::id_value(99999));
  expect_failure(metadata, StatusCode::corrupt_data, "eos_token_id is 99999");
}

TEST(Tokenizer, PlaceholderVocabulariesLoadAndSayWhatTheyLack) {
  gguf::Metadata metadata = test::small_metadata({});
  metadata.set("tokenizer.ggml.tokens", test::strings_value({"t0", "t1"}));
  metadata.set("tokenizer.ggml.token_type", test::numbers_value({1, 1}));
  const auto tokenizer = Tokenizer::from_gguf(metadata);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("hi", Special::parse).status().code(), StatusCode::corrupt_data);
}

TEST(Tokenizer, StopTokensOfGlmFilesAreFoundByText) {
  gguf::Metadata metadata =
      test::small_metadata({.control = {"<|endoftext|>", "[gMASK]", "<|user|>", "<|observation|>", "<x>"}});
  metadata.set("tokenizer.ggml.eos_token_id", test::id_value(260));
  EXPECT_EQ(Tokenizer::from_gguf(metadata)->stop_tokens(), (std::vector<int32_t>{256, 258, 259, 260}));
}

// A tokenizer.json of 256 bytes and one merge, to be damaged.
json small_json() {
  json vocab = json::object();
  const auto characters = test::byte_characters();
  for (int byte = 0; byte < 256; ++byte) vocab[characters[byte]] = byte;
  vocab["ab"] = 256;
  return {{"added_tokens", json::array({{{"id", 257}, {"content", "<|user|>"}, {"special", true}},
                                        {{"id", 258}, {"content", "<think>"}, {"special", false}}})},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             json::array({{{"type", "Split"}, {"pattern", {{"Regex", "\\p{N}{1,3}"}}}, {"behavior", "Isolated"}},
                          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}})}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array({"a b"})}}}};
}

TEST(TokenizerJson, MergesAreStringsOrPairs) {
  json document = small_json();
  auto strings = Tokenizer::from_json(document.dump(), "", "");
  ASSERT_TRUE(strings.ok()) << strings.status().message();
  document["model"]["merges"] = json::array({json::array({"a", "b"})});
  auto pairs = Tokenizer::from_json(document.dump(), "", "");
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  const std::vector<int32_t> wanted{'x', 256, 257, 258};
  EXPECT_EQ(*strings->encode("xab<|user|><think>", Special::parse), wanted);
  EXPECT_EQ(*pairs->encode("xab<|user|><think>", Special::parse), wanted);
  EXPECT_TRUE(pairs->is_special(257));
  EXPECT_FALSE(pairs->is_special(258));
}

TEST(TokenizerJson, IgnoreMergesIsRead) {
  json document = small_json();
  document["model"]["vocab"]["xyz"] = 259;
  EXPECT_EQ(Tokenizer::from_json(document.dump(), "", "")->encode("xyz", Special::parse)->size(), 3u);
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(Tokenizer::from_json(document.dump(), "", "")->encode("xyz", Special::parse)->size(), 1u);
}

TEST(TokenizerJson, StopAndStartTokensComeFromTheConfigs) {
  auto tokenizer = Tokenizer::from_json(small_json().dump(), R"({"eos_token_id": 3})", R"({"eos_token_id": [5, 4]})",
                                        R"({"eos_token": "<think>", "bos_token": {"content": "<|user|>"},
                                            "add_bos_token": true})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->stop_tokens(), (std::vector<int32_t>{3, 4, 5, 258}));
  EXPECT_EQ(tokenizer->bos(), 257);
}

TEST(TokenizerJson, WhatWouldChangeIdsIsRefusedByName) {
  const auto expect = [](const json& document, StatusCode code, const char* part) {
    const auto tokenizer = Tokenizer::from_json(document.dump(), "", "");
    ASSERT_FALSE(tokenizer.ok()) << part;
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
    EXPECT_NE(tokenizer.status().message().find(part), std::string::npos) << tokenizer.status().message();
  };
  json document = small_json();
  document["model"]["type"] = "Unigram";
  expect(document, StatusCode::unsupported, "Unigram");
  document = small_json();
  document["normalizer"] = {{"type", "NFC"}};
  expect(document, StatusCode::unsupported, "NFC");
  document = small_json();
  document["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
  expect(document, StatusCode::unsupported, "Removed");
  document = small_json();
  document["pre_tokenizer"] = {{"type", "Metaspace"}};
  expect(document, StatusCode::unsupported, "Metaspace");
  document = small_json();
  document["pre_tokenizer"]["pretokenizers"].erase(1);
  expect(document, StatusCode::unsupported, "ByteLevel");
  document = small_json();
  document["added_tokens"][0]["lstrip"] = true;
  expect(document, StatusCode::unsupported, "lstrip");
  document = small_json();
  document["model"]["byte_fallback"] = true;
  expect(document, StatusCode::unsupported, "byte_fallback");
  document = small_json();
  document["model"]["vocab"]["ab"] = 255;
  expect(document, StatusCode::corrupt_data, "id 255");
  document = small_json();
  document["model"]["vocab"]["far"] = 4000000000u;
  expect(document, StatusCode::corrupt_data, "4000000000");
  document["model"]["vocab"]["far"] = 10000000;
  expect(document, StatusCode::corrupt_data, "10000000");
  document = small_json();
  document["model"]["merges"] = json::array({"a c"});
  expect(document, StatusCode::corrupt_data, "no token \"ac\"");
  document["model"]["merges"] = json::array({7});
  expect(document, StatusCode::corrupt_data, "merge 0");
  document = small_json();
  document.erase("model");
  expect(document, StatusCode::corrupt_data, "model");
}

TEST(TokenizerJson, BrokenJsonIsAnError) {
  EXPECT_FALSE(Tokenizer::from_json("", "", "").ok());
  EXPECT_FALSE(Tokenizer::from_json("{\"model\": ", "", "").ok());
  EXPECT_FALSE(Tokenizer::from_json("[]", "", "").ok());
  EXPECT_FALSE(Tokenizer::from_json(std::string(200000, '['), "", "").ok());
}

}  // namespace
}  // namespace winnow
