// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/open.hpp"

#include "formats/test_files.hpp"

namespace winnow::safetensors {
namespace {

// A file with one F32 tensor of 2 elements,
std::string file_with(const std::string& name) {
  const std::string json = "{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  return raw_file(json, "abcdefgh");
}

std::string index_of(const std::string& map) { return R"({"metadata":{"total_size":16},"weight_map":{)" + map + "}}"; }

class TwoShards : public ::testing::Test {
 protected:
  TwoShards() {
    folder.write("model-00001-of-00002.safetensors", file_with("a"));
    folder.write("model-00002-of-00002.safetensors", file_with("b"));
  }
  void write_index(const std::string& map) const { folder.write("model.safetensors.index.json", index_of(map)); }
  TempFolder folder;
};

TEST_F(TwoShards, OpenFromAnyOfThem) {
  write_index(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  for (const char* name : {"", "model.safetensors.index.json", "model-00002-of-00002.safetensors"}) {
    const auto checkpoint = open_checkpoint(folder.path(name));
    ASSERT_TRUE(checkpoint.ok()) << name << ": " << checkpoint.status().message();
    EXPECT_EQ(checkpoint->files.size(), 2u);
    ASSERT_NE(checkpoint->find("b"), nullptr);
    EXPECT_EQ(static_cast<char>(checkpoint->find("b")->data[7]), 'h');
    EXPECT_TRUE(checkpoint->require_data().ok());
  }
}

TEST_F(TwoShards, NumbersSufficeWithoutAnIndex) {
  const auto checkpoint = open_checkpoint(folder.path("model-00001-of-00002.safetensors"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors.size(), 2u);
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
}

TEST_F(TwoShards, MissingShardIsNamed) {
  write_index(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  std::filesystem::remove(folder.path("model-00002-of-00002.safetensors"));
  const Status status = open_checkpoint(folder.path()).status();
  EXPECT_FAILS(status, "model-00002-of-00002.safetensors", "shard is missing");
  EXPECT_EQ(status.code(), StatusCode::not_found);
}

TEST_F(TwoShards, IndexThatLies) {
  write_index(R"("a":"model-00002-of-00002.safetensors","b":"model-00001-of-00002.safetensors")");
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "00001-of-00002", "not in it");
  write_index(R"("a":"../secret.safetensors")");
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "../secret", "same folder");
  write_index(R"("a":7)");
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "\"a\"", "wants the name");
  write_index("");
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "weight_map");
  folder.write("model.safetensors.index.json", "{");
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "index.json", "not valid JSON");
}

TEST_F(TwoShards, TheSameTensorTwice) {
  folder.write("model-00002-of-00002.safetensors", file_with("a"));
  EXPECT_FAILS(open_checkpoint(folder.path("model-00001-of-00002.safetensors")).status(), "tensor a", "twice");
}

TEST(SafetensorsOpen, FolderWithCompanions) {
  const TempFolder folder;
  folder.write("model.safetensors", file_with("a"));
  folder.write("golden.safetensors", file_with("logits"));
  folder.write("config.json", "{\"model_type\":\"glm_moe_dsa\"}");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"tool","template":"no"},{"name":"default","template":"yes"}]})");
  auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_NE(checkpoint->find("a"), nullptr);
  EXPECT_EQ(checkpoint->find("logits"), nullptr) << "model.safetensors alone is the model";
  EXPECT_EQ(checkpoint->config_json, "{\"model_type\":\"glm_moe_dsa\"}");
  EXPECT_EQ(checkpoint->tokenizer_json, "");
  EXPECT_EQ(checkpoint->chat_template, "yes");
  folder.write("chat_template.jinja", "file first");
  checkpoint = open_checkpoint(folder.path("golden.safetensors"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_NE(checkpoint->find("logits"), nullptr);
  EXPECT_EQ(checkpoint->chat_template, "file first");
}

TEST(SafetensorsOpen, CutData) {
  const TempFolder folder;
  const std::string whole = file_with("a");
  const auto checkpoint = open_checkpoint(folder.write("model.safetensors", whole.substr(0, whole.size() - 3)));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->find("a")->data, nullptr);
  EXPECT_EQ(checkpoint->missing_bytes(), 3);
  EXPECT_FAILS(checkpoint->require_data(), "tensor a", "3 are missing");
}

// 130 x 200 fp8 has 2 x 2 blocks of scales.
std::string fp8_file(const std::string& scale_entry, std::size_t scale_bytes) {
  const std::string json = R"({"w":{"dtype":"F8_E4M3","shape":[130,200],"data_offsets":[0,26000]})" + scale_entry + "}";
  return raw_file(json, std::string(26000, '\x38') + std::string(scale_bytes, '\0'));
}

TEST(SafetensorsOpen, Fp8GetsItsBlockScales) {
  const TempFolder folder;
  const auto open_with = [&](const std::string& scale_entry, std::size_t scale_bytes) {
    return open_checkpoint(folder.write("model.safetensors", fp8_file(scale_entry, scale_bytes)));
  };
  const auto good = open_with(R"(,"w_scale_inv":{"dtype":"F32","shape":[2,2],"data_offsets":[26000,26016]})", 16);
  ASSERT_TRUE(good.ok()) << good.status().message();
  const TensorInfo* w = good->find("w");
  EXPECT_EQ(w->type, StorageType::E4M3_B128);
  ASSERT_NE(w->block_scales, nullptr);
  EXPECT_EQ(w->block_scales[3], 0.0f);
  const auto cut = open_with(R"(,"w_scale_inv":{"dtype":"F32","shape":[2,2],"data_offsets":[26000,26016]})", 15);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_EQ(cut->find("w")->block_scales, nullptr);
  EXPECT_FALSE(cut->require_data().ok());
  EXPECT_FAILS(open_with("", 0).status(), "tensor w", "w_scale_inv", "absent");
  EXPECT_FAILS(open_with(R"(,"w_scale_inv":{"dtype":"F32","shape":[1,2],"data_offsets":[26000,26008]})", 8).status(),
               "w_scale_inv", "[1, 2]", "wants F32 [2, 2]");
  EXPECT_FAILS(open_with(R"(,"w_scale_inv":{"dtype":"BF16","shape":[2,2],"data_offsets":[26000,26008]})", 8).status(),
               "BF16", "wants F32");
}

}  // namespace
}  // namespace winnow::safetensors
