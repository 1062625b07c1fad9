// SPDX-License-Identifier: Apache-2.0
// Models against their goldens, and models with a wrong convention, which must fail.
#include "verify/verify.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace winnow {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

Golden golden_of(const std::string& path) {
  auto golden = read_golden(path);
  EXPECT_TRUE(golden.ok()) << golden.status().message();
  return std::move(golden).value();
}

VerifyReport report_of(const std::string& model_path, const Golden& golden, VerifyOptions options = {},
                       const ConventionOverrides& conventions = {}) {
  const auto checkpoint = open_checkpoint(model_path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  options.exact = !is_quantised(*checkpoint);
  const auto model = Model::load(*checkpoint, {conventions});
  EXPECT_TRUE(model.ok()) << model.status().message();
  const auto tokenizer = Tokenizer::load(*checkpoint);
  const auto report = verify(**model, tokenizer.ok() ? &*tokenizer : nullptr, golden, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return *report;
}

std::string nano(const char* name) { return std::string("tests/data/nano/") + name + "-bf16.gguf"; }
std::string nano_golden(const char* name) { return std::string("tests/data/nano/") + name + ".golden.safetensors"; }

constexpr const char* kFamilies[] = {"nano-glm5", "nano-glm52", "nano-dsv32"};

TEST(Verify, EveryFamilyAgreesWithItsReference) {
  for (const char* family : kFamilies) {
    const VerifyReport report = report_of(nano(family), golden_of(nano_golden(family)));
    EXPECT_TRUE(report.passed()) << to_text(report);
    std::cout << family << ":\n" << to_text(report);  // the counts of ties belong into the log of a test run
    for (const VerifyCase& c : report.cases) {
      EXPECT_FALSE(c.selections.empty());
      EXPECT_EQ(c.greedy.found.size(), 16u);
      EXPECT_EQ(c.argmax.compared, c.tokens);
    }
  }
}

// The checkpoints as they are published, one tensor per expert and kv_b unsplit. Not copied into the project.
TEST(Verify, EveryFamilyAgreesFromSafetensorsToo) {
  for (const char* family : kFamilies) {
    const std::string folder = std::string("../shared/models/") + family;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
    const VerifyReport report = report_of(folder, golden_of(nano_golden(family)));
    EXPECT_TRUE(report.passed()) << to_text(report);
  }
}

TEST(Verify, ChunkedPrefillAndTheReferenceBackendAgreeToo) {
  for (const char* family : kFamilies) {
    EXPECT_TRUE(report_of(nano(family), golden_of(nano_golden(family)), {.step_tokens = 7}).passed()) << family;
    EXPECT_TRUE(report_of(nano(family), golden_of(nano_golden(family)), {.attention = "cpu.reference"}).passed())
        << family;
  }
}

struct Mistake {
  const char* name;
  const char* family;
  ConventionOverrides conventions;
};

class WrongConvention : public testing::TestWithParam<Mistake> {};

TEST_P(WrongConvention, IsSeenToFail) {
  const Mistake& mistake = GetParam();
  const VerifyReport report =
      report_of(nano(mistake.family), golden_of(nano_golden(mistake.family)), {}, mistake.conventions);
  EXPECT_FALSE(report.passed()) << to_text(report);
}

INSTANTIATE_TEST_SUITE_P(
    Verify, WrongConvention,
    testing::Values(Mistake{"flipped_indexer_rope_glm", "nano-glm5", {.flip_indexer_rope = true}},
                    Mistake{"flipped_indexer_rope_deepseek", "nano-dsv32", {.flip_indexer_rope = true}},
                    Mistake{"dropped_k_norm_bias_glm", "nano-glm5", {.drop_k_norm_bias = true}},
                    Mistake{"dropped_k_norm_bias_deepseek", "nano-dsv32", {.drop_k_norm_bias = true}},
                    Mistake{"recomputed_shared_layers", "nano-glm52", {.recompute_shared_layers = true}},
                    Mistake{"forgotten_yarn_factor", "nano-dsv32", {.forget_yarn_factor = true}}),
    [](const testing::TestParamInfo<Mistake>& test) { return std::string(test.param.name); });

TEST(Verify, DenseAttentionIsNotWhatTheReferenceComputed) {
  EXPECT_FALSE(report_of(nano("nano-glm5"), golden_of(nano_golden("nano-glm5")), {.dense = true}).passed());
}

TEST(Verify, AGoldenThatWasTamperedWithFails) {
  const Golden golden = golden_of(nano_golden("nano-glm5"));
  Golden logit = golden, selection = golden, greedy = golden;
  logit.inputs[0].logits[12345] += 0.01f;
  // Position 40 is far behind topk: its own position is replaced by one that was not selected.
  auto& chosen = selection.inputs[0].selections[1];
  for (int32_t p = 0;; ++p) {
    int32_t* row = chosen.positions.data() + 40 * chosen.width;
    if (std::find(row, row + chosen.width, p) != row + chosen.width) continue;
    row[0] = p;
    break;
  }
  greedy.inputs[1].greedy[15] = (greedy.inputs[1].greedy[15] + 1) % 320;
  for (const Golden& wrong : {logit, selection, greedy}) {
    const VerifyReport report = report_of(nano("nano-glm5"), wrong);
    int failures = 0;
    for (const VerifyCase& c : report.cases) failures += static_cast<int>(c.failures.size());
    EXPECT_EQ(failures, 1) << to_text(report);
  }
}

TEST(Verify, AGoldenThatDoesNotFitIsAnErrorThatSaysWhy) {
  const auto checkpoint = open_checkpoint(nano("nano-glm5"));
  const auto model = Model::load(*checkpoint);
  ASSERT_TRUE(model.ok());
  Golden golden = golden_of(nano_golden("nano-glm5"));
  Golden vocabulary = golden, token = golden, layer = golden, length = golden, silent;
  silent.inputs.emplace_back().ids = {1, 2};
  vocabulary.inputs[0].vocab = 319;
  token.inputs[0].ids[3] = 320;
  layer.inputs[0].selections[0].index = 2;
  length.inputs[0].ids.resize(5000, 1);
  const std::pair<const Golden*, const char*> cases[] = {{&vocabulary, "319"},
                                                         {&token, "320"},
                                                         {&layer, "full layer 2"},
                                                         {&length, "4096"},
                                                         {&silent, "nothing to compare"}};
  for (const auto& [wrong, word] : cases) {
    const auto report = verify(**model, nullptr, *wrong);
    ASSERT_FALSE(report.ok()) << word;
    EXPECT_EQ(report.status().code(), StatusCode::corrupt_data);
    EXPECT_NE(report.status().message().find(word), std::string::npos) << report.status().message();
  }
}

TEST(Verify, FilesThatAreNoGoldens) {
  EXPECT_FALSE(read_golden("no/such.safetensors").ok());
  EXPECT_EQ(read_golden(nano("nano-glm5")).status().code(), StatusCode::not_found);
  // Token 2^32 + 5 must not pass for token 5.
  const std::string wide = testing::TempDir() + "/wide_id.safetensors";
  const std::string header = R"({"ids0":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}       )";
  const uint64_t bytes = header.size(), id = (uint64_t{1} << 32) + 5;
  std::ofstream(wide, std::ios::binary)
      .write(reinterpret_cast<const char*>(&bytes), 8)
      .write(header.data(), static_cast<std::streamsize>(header.size()))
      .write(reinterpret_cast<const char*>(&id), 8);
  EXPECT_NE(read_golden(wide).status().message().find("4294967301"), std::string::npos);
  Golden golden;
  EXPECT_FALSE(read_generations("[{\"prompt_ids\": []}]", golden).ok());
  EXPECT_FALSE(read_generations("{}", golden).ok());
  EXPECT_FALSE(read_generations("[{\"prompt_ids\": [1], \"greedy_ids\": [-1]}]", golden).ok());
  EXPECT_FALSE(read_generations("[", golden).ok());
}

TEST(Verify, JsonSaysTheSameAsTheReport) {
  const VerifyReport report = report_of(nano("nano-glm5"), golden_of(nano_golden("nano-glm5")));
  const nlohmann::json out = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(out["passed"].get<bool>());
  ASSERT_EQ(out["cases"].size(), report.cases.size());
  EXPECT_EQ(out["cases"][0]["argmax"]["equal"], report.cases[0].argmax.equal);
}

// The trained model ---------------------------------------------------------------------------------------------------

// Under a sanitizer the long prompts take minutes and touch no other line of code than the short ones.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kLongest = 700;
constexpr int kCodes = 1;
#else
constexpr std::size_t kLongest = 8192;
constexpr int kCodes = 4;
#endif

// Prompts of at most `longest` tokens, in the order of the file.
Golden tiny_golden(std::size_t longest) {
  Golden golden = golden_of("tests/data/tiny/golden.safetensors");
  const Status added = read_generations(read_file("tests/data/tiny/golden_generate.json"), golden);
  EXPECT_TRUE(added.ok()) << added.message();
  std::erase_if(golden.generations, [&](const GoldenGeneration& g) { return g.prompt.size() > longest; });
  return golden;
}

TEST(VerifyTiny, QuantisedWeightsKeepTheLikelihoodAndFindTheCodes) {
  const VerifyReport report = report_of("models/winnow-tiny-q8_0.gguf", tiny_golden(kLongest));
  std::cout << to_text(report);
  EXPECT_TRUE(report.passed());
  EXPECT_FALSE(report.exact);
  int codes = 0;
  for (const VerifyCase& c : report.cases) codes += c.code.empty() ? 0 : 1;
  EXPECT_EQ(codes, kCodes);
  if (kCodes < 4) std::cout << "[  SKIPPED ] codes in prompts of more than " << kLongest << " tokens: too slow here\n";
}

TEST(VerifyTiny, TheCheckpointAgreesInEverything) {
  const std::string folder = "../shared/models/tiny";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here: the 46 MB checkpoint is not copied";
  const VerifyReport report = report_of(folder, tiny_golden(kLongest));
  std::cout << to_text(report);
  EXPECT_TRUE(report.passed());
  EXPECT_TRUE(report.exact);
}

}  // namespace
}  // namespace winnow
