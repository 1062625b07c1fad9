// SPDX-License-Identifier: Apache-2.0
#include "models/tensors.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace winnow {
namespace {

constexpr const char* kNano = "tests/data/nano/nano-glm52-bf16.gguf";

class TensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Checkpoint> opened = open_checkpoint(kNano);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    checkpoint = std::move(opened).value();
    config = *read_config(checkpoint);
  }
  TensorInfo& tensor(const std::string& name) { return checkpoint.tensors[checkpoint.by_name.at(name)]; }
  void rename(const std::string& from, const std::string& to) {
    const std::size_t index = checkpoint.by_name.at(from);
    checkpoint.by_name.erase(from);
    checkpoint.by_name[to] = index;
    checkpoint.tensors[index].name = to;
  }
  Checkpoint checkpoint;
  ModelConfig config;
};

TEST_F(TensorsTest, EverythingIsNeededAndThere) {
  const TensorReport report = report_tensors(checkpoint, config);
  EXPECT_TRUE(report.complete()) << report.status().message();
  EXPECT_TRUE(report.unused.empty());
  EXPECT_TRUE(report.mtp.empty());
  EXPECT_EQ(checkpoint.tensors.size(), report.needed.size());
  EXPECT_EQ(12, std::count_if(report.needed.begin(), report.needed.end(),
                              [](const TensorNeed& need) { return need.per_expert; }));
}

TEST_F(TensorsTest, MissingIndexerTensorOnAFullLayer) {
  rename("blk.4.indexer.attn_k.weight", "blk.4.indexer.attn_key.weight");
  const TensorReport report = report_tensors(checkpoint, config);
  EXPECT_EQ(std::vector<std::string>{"blk.4.indexer.attn_k.weight"}, report.missing);
  EXPECT_EQ(std::vector<std::string>{"blk.4.indexer.attn_key.weight"}, report.unused);
  EXPECT_EQ(StatusCode::not_found, report.status().code());
  EXPECT_NE(std::string::npos, report.status().message().find("blk.4.indexer.attn_k.weight"));
  EXPECT_TRUE(report_tensors(checkpoint, config, true).complete()) << "a dense run does without";
}

TEST_F(TensorsTest, IndexerTensorsOnASharedLayerAreUnused) {
  rename("blk.4.indexer.attn_k.weight", "blk.3.indexer.attn_k.weight");
  EXPECT_EQ(std::vector<std::string>{"blk.3.indexer.attn_k.weight"}, report_tensors(checkpoint, config).unused);
}

TEST_F(TensorsTest, WrongShapeSaysBoth) {
  tensor("blk.1.attn_q_a.weight").dims[1] = 65;
  const Status status = report_tensors(checkpoint, config).status();
  EXPECT_EQ(StatusCode::corrupt_data, status.code());
  EXPECT_NE(std::string::npos, status.message().find("[96, 65]")) << status.message();
  EXPECT_NE(std::string::npos, status.message().find("[96, 64]")) << status.message();
}

TEST_F(TensorsTest, TypesWithoutADecoderAreNamed) {
  tensor("blk.1.attn_q_a.weight").type = StorageType::I64;
  const Status status = report_tensors(checkpoint, config).status();
  EXPECT_EQ(StatusCode::unsupported, status.code());
  EXPECT_NE(std::string::npos, status.message().find("I64")) << status.message();
}

TEST_F(TensorsTest, LayersBehindTheModelAreMtp) {
  rename("blk.4.attn_norm.weight", "blk.5.attn_norm.weight");
  EXPECT_EQ(std::vector<std::string>{"blk.5.attn_norm.weight"}, report_tensors(checkpoint, config).mtp);
}

TEST_F(TensorsTest, AFileWithoutAHeadTiesItToTheEmbedding) {
  rename("output.weight", "blk.9.output.weight");
  EXPECT_TRUE(report_tensors(checkpoint, config).complete());
}

}  // namespace
}  // namespace winnow
