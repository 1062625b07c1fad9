// SPDX-License-Identifier: Apache-2.0
// The forward pass against an independent reference (transformers in float32), and against wrong conventions.
//
// The small random models are in tests/data. Their safetensors form and the trained model are looked for beside the
// project (../shared/models); where they are not, those tests are skipped and say so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "verify/verify.hpp"

namespace winnow {
namespace {

const std::string kData = "tests/data/nano/";
const std::string kShared = "../shared/models/";

struct Loaded {
  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
};

Loaded load(const std::string& path, const LoadOptions& options = {}) {
  Loaded loaded;
  Result<Checkpoint> opened = open_checkpoint(path);
  WINNOW_CHECK(opened.ok(), opened.status().message());
  loaded.checkpoint = std::move(opened).value();
  Result<std::unique_ptr<Model>> model = Model::load(loaded.checkpoint, options);
  WINNOW_CHECK(model.ok(), model.status().message());
  loaded.model = std::move(model).value();
  Result<Tokenizer> tokenizer = Tokenizer::load(loaded.checkpoint);
  if (tokenizer.ok()) loaded.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer).value());
  return loaded;
}

Golden golden_of(const std::string& path) {
  Result<Golden> golden = read_golden(path);
  WINNOW_CHECK(golden.ok(), golden.status().message());
  return std::move(golden).value();
}

VerifyReport run(const Loaded& loaded, const Golden& golden, VerifyOptions options = {}) {
  options.exact = !is_quantised(loaded.checkpoint);
  Result<VerifyReport> report = verify(*loaded.model, loaded.tokenizer.get(), golden, options);
  WINNOW_CHECK(report.ok(), report.status().message());
  return std::move(report).value();
}

void expect_agreement(const Loaded& loaded, const Golden& golden, const VerifyOptions& options = {}) {
  const VerifyReport report = run(loaded, golden, options);
  std::cout << to_text(report);
  EXPECT_TRUE(report.passed());
}

class Nano : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::string gguf() const { return kData + GetParam() + "-bf16.gguf"; }
  [[nodiscard]] Golden golden() const { return golden_of(kData + GetParam() + ".golden.safetensors"); }
};

TEST_P(Nano, GgufAgrees) { expect_agreement(load(gguf()), golden()); }

TEST_P(Nano, ReferenceBackendAgrees) { expect_agreement(load(gguf()), golden(), {.attention = "cpu.reference"}); }

TEST_P(Nano, SafetensorsAgrees) {
  const std::string folder = kShared + GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  expect_agreement(load(folder), golden());
}

INSTANTIATE_TEST_SUITE_P(Models, Nano, testing::Values("nano-glm5", "nano-glm52", "nano-dsv32"),
                         [](const auto& instance) { return instance.param.substr(5); });

void expect_disagreement(const std::string& name, const ConventionOverrides& conventions) {
  const Golden golden = golden_of(kData + name + ".golden.safetensors");
  const VerifyReport report = run(load(kData + name + "-bf16.gguf", {.conventions = conventions}), golden);
  EXPECT_FALSE(report.passed()) << name << " with a wrong convention passes verify:\n" << to_text(report);
  double worst = 0;
  for (const VerifyCase& input : report.cases) worst = std::max(worst, input.logits.worst);
  EXPECT_GT(worst, VerifyOptions().logit_tolerance) << name << ": the logits do not show it";
}

TEST(WrongConventions, FlippedIndexerRopeFails) {
  for (const char* name : {"nano-glm5", "nano-glm52", "nano-dsv32"}) {
    expect_disagreement(name, {.flip_indexer_rope = true});
  }
}

TEST(WrongConventions, DroppedKeyNormBiasFails) {
  for (const char* name : {"nano-glm5", "nano-glm52", "nano-dsv32"}) {
    expect_disagreement(name, {.drop_k_norm_bias = true});
  }
}

TEST(WrongConventions, RecomputedSharedLayerFails) {
  expect_disagreement("nano-glm52", {.recompute_shared_layers = true});
}

TEST(WrongConventions, ForgottenYarnFactorFails) { expect_disagreement("nano-dsv32", {.forget_yarn_factor = true}); }

// What the whole test stands on: without an override the same call passes, and a dense run of the same model does not.
TEST(WrongConventions, ReadingEverythingFailsToo) {
  const Golden golden = golden_of(kData + "nano-glm5.golden.safetensors");
  EXPECT_FALSE(run(load(kData + "nano-glm5-bf16.gguf"), golden, {.dense = true}).passed());
}

class Tiny : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kShared + "tiny")) GTEST_SKIP() << kShared << "tiny is not there";
    golden = golden_of(kShared + "tiny/golden.safetensors");
    std::ifstream file(kShared + "tiny/golden_generate.json");
    const std::string json((std::istreambuf_iterator<char>(file)), {});
    ASSERT_TRUE(read_generations(json, golden).ok());
    ASSERT_EQ(7u, golden.generations.size());
  }
  Golden golden;
};

// Text, and all seven greedy continuations token for token.
TEST_F(Tiny, SafetensorsAgrees) { expect_agreement(load(kShared + "tiny"), golden); }

// Mean NLL within 0.5 %, and the four codes in documents of up to 7,900 tokens.
TEST_F(Tiny, Q8_0FindsTheCodes) { expect_agreement(load(kShared + "gguf/tiny-q8_0.gguf"), golden); }

}  // namespace
}  // namespace winnow
