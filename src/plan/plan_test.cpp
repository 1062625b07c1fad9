// SPDX-License-Identifier: Apache-2.0
// Plans of the real headers (cut to 100 KB): the numbers that can be derived, and every way to be refused.
#include "plan/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace winnow {
namespace {

Checkpoint header(const std::string& name) {
  Result<Checkpoint> checkpoint = open_checkpoint("tests/data/headers/" + name + "-q4_k_m.gguf");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return std::move(checkpoint).value();
}

DeviceInfo device(std::string_view text) { return parse_device(text).value(); }

Plan planned(const Checkpoint& checkpoint, std::string_view on, const PlanOptions& options = {}) {
  Result<Plan> plan = make_plan(checkpoint, device(on), options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

PlanOptions fp8() {
  PlanOptions options;
  options.rows = RowFormat::v32_fp8;
  options.keys = KeyFormat::fp8;
  return options;
}

bool says(const std::vector<std::string>& lines, std::string_view words) {
  return std::any_of(lines.begin(), lines.end(),
                     [words](const std::string& line) { return line.find(words) != std::string::npos; });
}

constexpr const char* kLargeCpu = "cpu:64 cores, 512 GB, 400 GB/s";

TEST(Plan, CacheBytesPerTokenOfPublishedModels) {
  EXPECT_EQ(planned(header("glm-5.2"), kLargeCpu).cache_bytes_per_token(), 95232);
  EXPECT_EQ(planned(header("deepseek-v3.2"), kLargeCpu).cache_bytes_per_token(), 85888);
  EXPECT_EQ(planned(header("glm-5.2"), kLargeCpu, fp8()).cache_bytes_per_token(), 53940);
  EXPECT_EQ(planned(header("deepseek-v3.2"), kLargeCpu, fp8()).cache_bytes_per_token(), 48068);
  EXPECT_EQ(planned(header("glm-5"), kLargeCpu).cache_bytes_per_token(), 78 * (1152 + 256));
}

TEST(Plan, WeightsAreExactAndSplitWithoutLoss) {
  const Checkpoint checkpoint = header("glm-5.2");
  const Plan plan = planned(checkpoint, "8x rtx-pro-6000");
  // blk.78 is the MTP layer and the last of the file: everything before it is needed.
  EXPECT_EQ(plan.weight_bytes, 445684973568);
  ASSERT_EQ(plan.shares.size(), 8u);
  int64_t weights = 0, layers = 0, cache = 0;
  for (const DeviceShare& share : plan.shares) {
    EXPECT_EQ(share.first_layer, layers);
    EXPECT_LE(share.total_bytes(), plan.usable_bytes);
    layers += share.layers;
    weights += share.weight_bytes;
    cache += share.cache_bytes;
  }
  EXPECT_EQ(layers, 78);
  EXPECT_EQ(weights, plan.weight_bytes);
  EXPECT_EQ(cache, plan.context * plan.cache_bytes_per_token());
}

TEST(Plan, ALargeCpuCanRunAndTheContextIsWhatMemoryLeaves) {
  const Plan plan = planned(header("glm-5.2"), kLargeCpu);
  EXPECT_TRUE(plan.can_run()) << proof_of_refusal(plan);
  EXPECT_TRUE(proof_of_refusal(plan).empty());
  EXPECT_EQ(plan.context, plan.largest_context);
  EXPECT_LT(plan.largest_context, plan.config.context);
  const int64_t page = 64 * plan.cache_bytes_per_token();
  const int64_t used = plan.weight_bytes + plan.context * plan.cache_bytes_per_token() + plan.workspace_bytes;
  EXPECT_LE(used, plan.usable_bytes);
  EXPECT_GT(used + 2 * page, plan.usable_bytes);  // not a page is wasted (one for the workspace that grows with it)
  EXPECT_GT(plan.decode.tokens_per_second, 0);
  EXPECT_EQ(plan.decode.bound, "memory");
  EXPECT_EQ(plan.prefill.bound, "arithmetic");
}

TEST(Plan, AnFp8CacheHoldsMore) {
  const Checkpoint checkpoint = header("glm-5.2");
  EXPECT_GT(planned(checkpoint, kLargeCpu, fp8()).largest_context, planned(checkpoint, kLargeCpu).largest_context);
}

TEST(Plan, TooLittleMemoryIsRefusedWithWhatWouldDo) {
  const Checkpoint checkpoint = header("glm-5.2");
  const Plan plan = planned(checkpoint, "cpu:8 cores, 64 GB, 60 GB/s");
  EXPECT_FALSE(plan.can_run());
  EXPECT_EQ(plan.largest_context, 0);
  EXPECT_TRUE(plan.shares.empty());
  ASSERT_EQ(plan.refusals.size(), 1u);
  EXPECT_NE(plan.refusals[0].find("memory: wants 445.7 GB for weights"), std::string::npos) << plan.refusals[0];
  EXPECT_TRUE(says(plan.remedies, "a smaller quantisation: about 6")) << proof_of_refusal(plan);
  // The remedy holds to the byte: that much memory runs it, a megabyte less does not.
  const auto remedy = std::find_if(plan.remedies.begin(), plan.remedies.end(),
                                   [](const std::string& line) { return line.find("a CPU with") == 0; });
  ASSERT_NE(remedy, plan.remedies.end());
  std::string digits = remedy->substr(remedy->find('(') + 1);
  digits.erase(std::remove(digits.begin(), digits.end(), ','), digits.end());
  DeviceInfo cpu = device("cpu:8 cores, 64 GB, 60 GB/s");
  cpu.memory_bytes = std::stoll(digits);
  EXPECT_TRUE(make_plan(checkpoint, cpu, {}).value().can_run());
  cpu.memory_bytes -= 1'000'000;
  EXPECT_FALSE(make_plan(checkpoint, cpu, {}).value().can_run());
}

TEST(Plan, AContextBeyondMemoryNamesTheOneThatFits) {
  PlanOptions options;
  options.context = 1'000'000;
  const Checkpoint checkpoint = header("glm-5.2");
  const Plan plan = planned(checkpoint, kLargeCpu, options);
  EXPECT_FALSE(plan.can_run());
  EXPECT_TRUE(says(plan.refusals, "tokens would fit"));
  ASSERT_TRUE(says(plan.remedies, "a context of "));
  options.context = plan.context;
  EXPECT_TRUE(planned(checkpoint, kLargeCpu, options).can_run());
  options.context = 700'000;
  EXPECT_TRUE(says(planned(checkpoint, kLargeCpu, options).remedies, "an fp8 cache"));
}

TEST(Plan, AContextBeyondTheModelIsRefused) {
  PlanOptions options;
  options.context = 200'000;
  const Plan plan = planned(header("deepseek-v3.2"), kLargeCpu, options);
  EXPECT_TRUE(says(plan.refusals, "context: wants at most 163,840 tokens, as the model was trained, has 200,000"));
  EXPECT_TRUE(says(plan.remedies, "a context of 163,840 tokens")) << proof_of_refusal(plan);
}

TEST(Plan, ManySequencesShareTheMemory) {
  PlanOptions options;
  options.sequences = 8;
  const Plan one = planned(header("glm-5.2"), kLargeCpu), eight = planned(header("glm-5.2"), kLargeCpu, options);
  EXPECT_LE(eight.context, one.context / 8);
  EXPECT_GT(eight.context, one.context / 9);
  EXPECT_EQ(eight.largest_context / 1000, one.largest_context / 1000);
  EXPECT_GT(eight.decode.tokens_per_second, one.decode.tokens_per_second);
}

TEST(Plan, AGpuShowsItsKernelsAndSaysWhatThisVersionLacks) {
  const Plan plan = planned(header("glm-5.2"), "8x rtx-pro-6000");
  EXPECT_FALSE(plan.can_run());
  ASSERT_TRUE(plan.path.admitted());
  EXPECT_STREQ(plan.path.step("decode attention").chosen->name, "cuda.sm80");
  EXPECT_GT(plan.path.step("decode attention").launch.shared_bytes, 0);
  EXPECT_LE(plan.path.step("decode attention").launch.shared_bytes, 99 * 1024);
  EXPECT_TRUE(says(plan.refusals, "cuda.sm80 is not built into this program"));
  EXPECT_TRUE(says(plan.refusals, "operations: the forward pass"));
  EXPECT_TRUE(says(plan.remedies, "a CPU with at least"));
  const std::string proof = proof_of_refusal(plan);
  EXPECT_EQ(proof.find("  because "), 0u) << proof;
  EXPECT_NE(proof.find("  and because  "), std::string::npos) << proof;
  EXPECT_NE(proof.find("  no path exists for this model on 8x NVIDIA RTX PRO 6000"), std::string::npos) << proof;
}

TEST(Plan, OneSmallGpuSaysHowManyWouldHoldTheModel) {
  const Plan plan = planned(header("glm-5.2"), "rtx-4090");
  EXPECT_TRUE(says(plan.refusals, " of these devices would hold it")) << proof_of_refusal(plan);
  EXPECT_EQ(plan.context, 0);
}

TEST(Plan, AHeaderOnThisMachineLacksItsData) {
  DeviceInfo here = device(kLargeCpu);
  here.described = false;
  const Plan plan = make_plan(header("glm-5.2"), here, {}).value();
  EXPECT_FALSE(plan.can_run());
  EXPECT_TRUE(says(plan.refusals, "lacks 452.2 GB (452,239,503,360 B)")) << proof_of_refusal(plan);
  EXPECT_TRUE(plan.remedies.empty());                                          // no other device brings the data
  EXPECT_TRUE(says(planned(header("glm-5.2"), kLargeCpu).notes, "452.2 GB"));  // described: a note, not a refusal
}

TEST(Plan, AMissingTensorIsNamed) {
  Checkpoint checkpoint = header("glm-5");
  checkpoint.by_name.erase("blk.40.indexer.k_norm.bias");
  std::erase_if(checkpoint.tensors, [](const TensorInfo& t) { return t.name == "blk.40.indexer.k_norm.bias"; });
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) checkpoint.by_name[checkpoint.tensors[i].name] = i;
  const Plan plan = planned(checkpoint, kLargeCpu);
  EXPECT_FALSE(plan.can_run());
  EXPECT_TRUE(says(plan.refusals, "blk.40.indexer.k_norm.bias")) << proof_of_refusal(plan);
  EXPECT_TRUE(plan.remedies.empty());
  EXPECT_NE(proof_of_refusal(plan).find("No single change that was tried gives one."), std::string::npos);
}

TEST(Plan, ATypeWithoutDecoderIsNamedWithItsTensor) {
  const StorageType type = StorageType::Q8_K;  // an activation format: named, never stored, never decoded
  ASSERT_NE(traits_of(type), nullptr);
  ASSERT_FALSE(traits_of(type)->decodable);
  Checkpoint checkpoint = header("glm-5");
  for (TensorInfo& tensor : checkpoint.tensors) {
    if (tensor.name == "blk.7.ffn_up_exps.weight") tensor.type = type;
  }
  const Plan plan = planned(checkpoint, kLargeCpu);
  EXPECT_FALSE(plan.can_run());
  EXPECT_TRUE(says(plan.refusals, "blk.7.ffn_up_exps.weight")) << proof_of_refusal(plan);
  EXPECT_TRUE(says(plan.refusals, "Q8_K")) << proof_of_refusal(plan);
}

TEST(Plan, AForcedBackend) {
  const Checkpoint checkpoint = header("glm-5.2");
  PlanOptions options;
  options.attention = "cpu.reference";
  EXPECT_TRUE(planned(checkpoint, kLargeCpu, options).can_run());
  options.attention = "cuda.sm80";
  const Plan plan = planned(checkpoint, kLargeCpu, options);
  EXPECT_FALSE(plan.can_run());
  EXPECT_TRUE(says(plan.refusals, "cuda.sm80 (forced): device: wants an NVIDIA GPU, has a CPU"))
      << proof_of_refusal(plan);
  EXPECT_TRUE(says(plan.remedies, "--attention cpu.simd")) << proof_of_refusal(plan);
  options.attention = "cpu.none";
  const Result<Plan> unknown = make_plan(checkpoint, device(kLargeCpu), options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("cpu.simd"), std::string::npos);
}

TEST(Plan, OptionsWithoutMeaningAreRefused) {
  const Checkpoint checkpoint = header("glm-5.2");
  PlanOptions options;
  options.sequences = 0;
  EXPECT_EQ(make_plan(checkpoint, device(kLargeCpu), options).status().code(), StatusCode::invalid_argument);
  options = {};
  options.context = -1;
  EXPECT_EQ(make_plan(checkpoint, device(kLargeCpu), options).status().code(), StatusCode::invalid_argument);
  options = {};
  options.step_tokens = 0;
  EXPECT_EQ(make_plan(checkpoint, device(kLargeCpu), options).status().code(), StatusCode::invalid_argument);
}

TEST(Plan, JsonHasTheNumbersOfThePlan) {
  const Plan plan = planned(header("glm-5.2"), "rtx-4090");
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["can_run"], false);
  EXPECT_EQ(json["memory"]["weight_bytes"], plan.weight_bytes);
  EXPECT_EQ(json["memory"]["cache_bytes_per_token"], 95232);
  EXPECT_EQ(json["context"]["largest_of_one_sequence"], 0);
  EXPECT_EQ(json["refusals"].size(), plan.refusals.size());
  EXPECT_EQ(json["device"]["sm"], 89);
  ASSERT_EQ(json["path"]["steps"].size(), 4u);
  EXPECT_EQ(json["path"]["steps"][3]["operation"], "decode attention");
  EXPECT_EQ(json["path"]["steps"][3]["chosen"], "cuda.sm80");
}

TEST(Plan, ANameThatIsNoUtf8StillGivesJson) {
  Plan plan = planned(header("glm-5.2"), kLargeCpu);
  plan.config.name = "bad \xff name";
  EXPECT_TRUE(nlohmann::json::accept(to_json(plan)));
}

// The issue of time is the header's, not the plan's: both together stay far below a second.
TEST(Plan, IsQuick) {
  const auto start = std::chrono::steady_clock::now();
  const Checkpoint checkpoint = header("glm-5");
  for (const char* on : {"8x h200", "rtx-4090", "cpu:8 cores, 64 GB, 60 GB/s"})
    EXPECT_FALSE(to_text(planned(checkpoint, on)).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

}  // namespace
}  // namespace winnow
