// SPDX-License-Identifier: Apache-2.0
// Plans of three published models on ten devices, word for word, in tests/golden/plan. `plan_golden_test --update`
// rewrites the files; read the difference before it is committed.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "plan/plan.hpp"

namespace winnow {
namespace {

bool update = false;

constexpr const char* kModels[] = {"glm-5", "glm-5.2", "deepseek-v3.2"};
constexpr const char* kDevices[] = {"8x rtx-pro-6000",
                                    "8x h200",
                                    "h200",
                                    "rtx-4090",
                                    "16x rtx-3090",
                                    "8x a100-80g",
                                    "8x rtx-5090",
                                    "4x gb10",
                                    "4x b200",
                                    "cpu:64 cores, 512 GB, 400 GB/s",
                                    "cpu:8 cores, 64 GB, 60 GB/s"};

struct Golden {
  std::string model, device;
  friend std::ostream& operator<<(std::ostream& out, const Golden& golden) {
    return out << golden.model << " on " << golden.device;
  }
};

std::string slug(const std::string& text) {
  std::string name;
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name.push_back(c);
    } else if (!name.empty() && name.back() != '-') {
      name.push_back('-');
    }
  }
  return name;
}

std::string golden_path(const Golden& golden) {
  return "tests/golden/plan/" + golden.model + "/" + slug(golden.device) + ".txt";
}

// The file begins with the command that prints the rest.
std::string text_of(const Golden& golden, const std::string& header, const std::string& shown) {
  const Result<Checkpoint> checkpoint = open_checkpoint(header);
  if (!checkpoint.ok()) return checkpoint.status().message();
  const Result<Plan> plan = make_plan(checkpoint.value(), parse_device(golden.device).value(), {});
  if (!plan.ok()) return plan.status().message();
  return "$ winnow plan " + shown + " --device \"" + golden.device + "\"\n" + to_text(plan.value());
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string small_header(const Golden& golden) { return "tests/data/headers/" + golden.model + "-q4_k_m.gguf"; }
std::string full_header(const Golden& golden) {
  return "../shared/models/headers/" + golden.model + "-q4_k_m.header.gguf";
}

class PlanGolden : public testing::TestWithParam<Golden> {};

TEST_P(PlanGolden, ReadsWordForWord) {
  const std::string text = text_of(GetParam(), small_header(GetParam()), small_header(GetParam()));
  const std::string path = golden_path(GetParam());
  if (update) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing; plan_golden_test --update writes it";
  EXPECT_EQ(text, contents(path)) << "if the change is meant: plan_golden_test --update, from the source tree";
}

// The headers were cut from larger ones; where those are at hand, the plan must not see the difference.
TEST_P(PlanGolden, TheWholeHeaderGivesTheSamePlan) {
  const std::string full = full_header(GetParam());
  if (!std::filesystem::exists(full)) GTEST_SKIP() << full << " is not here";
  EXPECT_EQ(text_of(GetParam(), full, small_header(GetParam())), contents(golden_path(GetParam())));
}

std::vector<Golden> goldens() {
  std::vector<Golden> all;
  for (const char* model : kModels) {
    for (const char* device : kDevices) all.push_back({model, device});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Headers, PlanGolden, testing::ValuesIn(goldens()),
                         [](const testing::TestParamInfo<Golden>& one) {
                           std::string name = slug(one.param.model + "_on_" + one.param.device);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) winnow::update = winnow::update || std::strcmp(argv[i], "--update") == 0;
  return RUN_ALL_TESTS();
}
