// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf/open.hpp"

#include <chrono>

#include "formats/test_files.hpp"

namespace winnow::gguf {
namespace {

std::string raw_key_u16(const std::string& key, uint16_t value) {
  return raw_string(key) + raw<uint32_t>(2) + raw(value);
}

// Shard `index` of `count` of a model with one F32 tensor of 8 elements per shard (none in the first when asked).
RawGguf shard(int index, int count, int total, bool with_tensor = true) {
  RawGguf file;
  if (index == 0) file.keys.push_back(raw_key_string("general.architecture", "glm-dsa"));
  file.keys.push_back(raw_key_u16("split.no", static_cast<uint16_t>(index)));
  file.keys.push_back(raw_key_u16("split.count", static_cast<uint16_t>(count)));
  file.keys.push_back(raw_string("split.tensors.count") + raw<uint32_t>(5) + raw<int32_t>(total));
  if (with_tensor) {
    file.tensors = {{"t" + std::to_string(index), {8}, 0, 0}};
    file.data = std::string(32, static_cast<char>('a' + index));
  }
  return file;
}

std::string name_of_shard(int index, int count) { return ShardName{"m", index + 1, count}.path(index + 1); }

TEST(GgufOpen, ShardNames) {
  const auto name = shard_of_name("dir/GLM-5-00002-of-00011.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "dir/GLM-5");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 11);
  EXPECT_EQ(name->path(11), "dir/GLM-5-00011-of-00011.gguf");
  for (const char* other : {"m.gguf", "-00001-of-00002.gguf", "m-0001-of-00002.gguf", "m-00003-of-00002.gguf",
                            "m-00000-of-00002.gguf", "m-00001-of-00002.ggu", "m-+0001-of-00002.gguf"}) {
    EXPECT_FALSE(shard_of_name(other).has_value()) << other;
  }
}

TEST(GgufOpen, AnyShardOpensAllAndTheFirstMayHoldNoTensor) {
  const TempFolder folder;
  folder.write(name_of_shard(0, 3), shard(0, 3, 2, false).header());  // ends exactly where its header ends
  for (int i = 1; i < 3; ++i) folder.write(name_of_shard(i, 3), shard(i, 3, 2).bytes());
  for (int i = 0; i < 3; ++i) {
    const auto checkpoint = open_checkpoint(folder.path(name_of_shard(i, 3)));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->files.size(), 3u);
    EXPECT_EQ(checkpoint->metadata.string("general.architecture").value(), "glm-dsa");
    const TensorInfo* last = checkpoint->find("t2");
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(last->file, 2);
    ASSERT_NE(last->data, nullptr);
    EXPECT_EQ(static_cast<char>(last->data[31]), 'c');
    EXPECT_TRUE(checkpoint->require_data().ok());
    EXPECT_EQ(checkpoint->missing_bytes(), 0);
  }
  const auto whole = open_checkpoint(folder.path());
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->tensors.size(), 2u);
}

TEST(GgufOpen, MissingShardIsNamed) {
  const TempFolder folder;
  folder.write(name_of_shard(0, 3), shard(0, 3, 3).bytes());
  folder.write(name_of_shard(2, 3), shard(2, 3, 3).bytes());
  const Status status = open_checkpoint(folder.path(name_of_shard(2, 3))).status();
  EXPECT_FAILS(status, "m-00002-of-00003.gguf", "shard 2 of 3 is missing");
  EXPECT_EQ(status.code(), StatusCode::not_found);
}

TEST(GgufOpen, MixedShards) {
  const TempFolder folder;
  folder.write(name_of_shard(0, 2), shard(0, 2, 2).bytes());
  folder.write(name_of_shard(1, 2), shard(0, 2, 2).bytes());
  EXPECT_FAILS(open_checkpoint(folder.path(name_of_shard(0, 2))).status(), "m-00002-of-00002.gguf", "shard 1 of 2",
               "mixed");
  folder.write(name_of_shard(1, 2), shard(1, 4, 2).bytes());
  EXPECT_FAILS(open_checkpoint(folder.path(name_of_shard(1, 2))).status(), "shard 2 of 4", "2 of 2");
  RawGguf same_tensor = shard(1, 2, 2);
  same_tensor.tensors[0].name = "t0";
  folder.write(name_of_shard(1, 2), same_tensor.bytes());
  EXPECT_FAILS(open_checkpoint(folder.path(name_of_shard(0, 2))).status(), "t0", "appears twice");
}

TEST(GgufOpen, TensorTotalMustAgree) {
  const TempFolder folder;
  for (int i = 0; i < 2; ++i) folder.write(name_of_shard(i, 2), shard(i, 2, 5).bytes());
  EXPECT_FAILS(open_checkpoint(folder.path(name_of_shard(0, 2))).status(), "split.tensors.count is 5", "2 tensors");
}

TEST(GgufOpen, RenamedShardIsExplained) {
  const TempFolder folder;
  folder.write("renamed.gguf", shard(0, 2, 2).bytes());
  EXPECT_FAILS(open_checkpoint(folder.path("renamed.gguf")).status(), "one of 2 shards", "name");
}

TEST(GgufOpen, CutDataOpensAndSaysWhatIsMissing) {
  RawGguf file;
  file.tensors = {{"first", {8}, 0, 0}, {"second", {8}, 0, 32}};
  file.data = std::string(64, 'x');
  const std::string whole = file.bytes();
  const TempFolder folder;
  folder.write("cut.gguf", whole.substr(0, whole.size() - 1));
  auto checkpoint = open_checkpoint(folder.path("cut.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_NE(checkpoint->find("first")->data, nullptr);
  EXPECT_EQ(checkpoint->find("second")->data, nullptr);
  EXPECT_EQ(checkpoint->missing_bytes(), 1);
  EXPECT_FAILS(checkpoint->require_data(), "cut.gguf", "tensor second", "1 are missing", "download complete");

  folder.write("header.gguf", file.header());
  checkpoint = open_checkpoint(folder.path("header.gguf"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_FAILS(checkpoint->require_data(), "tensor first", "header without tensor data", "are missing");
  EXPECT_EQ(checkpoint->require_data().code(), StatusCode::io_error);
}

TEST(GgufOpen, FilesThatAreNoFiles) {
  const TempFolder folder;
  EXPECT_EQ(open_checkpoint(folder.path("absent.gguf")).status().code(), StatusCode::not_found);
  EXPECT_FAILS(open_checkpoint(folder.write("empty.gguf", "")).status(), "empty.gguf", "empty file");
  EXPECT_FAILS(open_checkpoint("/dev/null").status(), "is a device");
  EXPECT_FAILS(open_checkpoint(folder.write("model.bin", "PK\x03\x04zip")).status(), "model.bin", "zip archive");
  EXPECT_FAILS(open_checkpoint(folder.write("m.gguf", safetensors::raw_file("{}  "))).status(), "safetensors");
}

TEST(GgufOpen, RealHeadersOpenAtOnce) {
  const std::string folder = "../shared/models/headers/";
  struct Expected {
    const char* name;
    std::size_t tensors;
    int64_t vocabulary;
  };
  for (const Expected& e :
       {Expected{"deepseek-v3.2-q4_k_m.header.gguf", 1418, 129280}, Expected{"glm-5-q4_k_m.header.gguf", 1809, 154880},
        Expected{"glm-5.2-q4_k_m.header.gguf", 1524, 154880}}) {
    if (!std::filesystem::exists(folder + e.name)) GTEST_SKIP() << folder << e.name << " is not here";
    const auto begin = std::chrono::steady_clock::now();
    const auto checkpoint = open_checkpoint(folder + e.name);
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->tensors.size(), e.tensors);
    EXPECT_EQ(checkpoint->metadata.strings("tokenizer.ggml.tokens")->size(), static_cast<std::size_t>(e.vocabulary));
    EXPECT_GT(checkpoint->missing_bytes(), int64_t{400} << 30 >> 1);
    EXPECT_FAILS(checkpoint->require_data(), "header without tensor data");
    EXPECT_LT(took, std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace winnow::gguf
