// SPDX-License-Identifier: Apache-2.0
// Out-of-tree backends through the C ABI: chosen and refused like any row, right against the oracle, and turned away
// with a reason when they are broken. The registry is the process's own, so every test asks for what it needs loaded.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "contract/oracle.hpp"
#include "select/select.hpp"

namespace winnow {
namespace {

std::string library(const std::string& name) { return std::string(WINNOW_TEST_PLUGINS) + "/" + name + ".so"; }

const Backend* example() {
  static const Status status = load_backend_plugin(library("example_backend"));
  EXPECT_TRUE(status.ok()) << status.message();
  return find_backend("cpu.example");
}

AttentionNeeds small_needs() {
  AttentionNeeds needs;
  needs.q_heads = 4;
  needs.d_nope = 512;
  needs.d_rope = 64;
  needs.d_v = 512;
  needs.topk = 128;
  needs.index_heads = 8;
  needs.index_dim = 128;
  needs.context = 8192;
  needs.activations = DType::f32;
  return needs;
}

DeviceInfo cpu() {
  DeviceInfo device;
  device.name = "a CPU";
  device.units = 1;
  return device;
}

TEST(Plugin, StandsInTheTableInFrontOfItsKind) {
  ASSERT_NE(example(), nullptr);
  EXPECT_STREQ(in_order_for(cpu())[0]->name, "cpu.example");
}

TEST(Plugin, IsChosenForWhatItAdmitsAndTheRestStaysWithTheTable) {
  ASSERT_NE(example(), nullptr);
  const Result<AttentionPath> path = choose_path(small_needs(), cpu());
  ASSERT_TRUE(path.ok());
  ASSERT_TRUE(path.value().admitted()) << why_no_path(path.value());
  EXPECT_STREQ(path.value().step("decode attention").chosen->name, "cpu.example");
  EXPECT_EQ(path.value().step("decode attention").launch.note, "scalar C, out of tree");
  EXPECT_STRNE(path.value().step("index select").chosen->name, "cpu.example");
}

TEST(Plugin, IsRefusedWithEveryReasonAndTheNextRowIsTaken) {
  ASSERT_NE(example(), nullptr);
  AttentionNeeds needs = small_needs();
  needs.q_heads = 64;
  needs.rows = RowFormat::v32_fp8;
  const Result<AttentionPath> path = choose_path(needs, cpu());
  ASSERT_TRUE(path.ok());
  const PathStep& decode = path.value().step("decode attention");
  ASSERT_EQ(decode.considered[0].backend, example());
  ASSERT_EQ(decode.considered[0].verdict.refusals.size(), 2u);
  EXPECT_EQ(clause(decode.considered[0].verdict.refusals[0]), "row format: wants 1 (bf16), has 2");
  EXPECT_EQ(clause(decode.considered[0].verdict.refusals[1]), "q_heads: wants 1 to 16, has 64");
  ASSERT_NE(decode.chosen, nullptr);
  EXPECT_NE(decode.chosen, example());
}

TEST(Plugin, ForcedWhereItRefusesIsAProofThatNamesWhatWorks) {
  ASSERT_NE(example(), nullptr);
  AttentionNeeds needs = small_needs();
  needs.q_heads = 64;
  const Result<AttentionPath> path = choose_path(needs, cpu(), "cpu.example");
  ASSERT_TRUE(path.ok());
  EXPECT_FALSE(path.value().admitted());
  const std::string proof = why_no_path(path.value());
  EXPECT_NE(proof.find("cpu.example (forced): q_heads: wants 1 to 16, has 64"), std::string::npos) << proof;
  EXPECT_NE(proof.find("--attention cpu.reference"), std::string::npos) << proof;
}

// A small problem whose unused slots, rows and outputs are NaN.
struct Case {
  SparseMlaProblem problem;
  SparseMlaBuffers buffers;
  std::vector<float> q, out, lse, sink;
  std::vector<bf16> rows;
  std::vector<int32_t> slots, len;
};

Case make_case() {
  Case c;
  SparseMlaProblem& p = c.problem;
  p.tokens = 3;
  p.q_heads = 4;
  p.topk = 9;
  p.page_size = 5;
  p.d_nope = 64;
  p.d_rope = 32;
  p.d_v = 64;
  p.softmax_scale = 0.1f;
  p.activations = DType::f32;
  constexpr int kPages = 4;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  c.q.resize(static_cast<std::size_t>(int64_t{p.tokens} * p.q_heads * p.d_qk()));
  for (float& x : c.q) x = normal(random);
  for (int i = 0; i < kPages * p.page_size * p.d_qk(); ++i) c.rows.push_back(to_bf16(normal(random)));
  c.out.assign(static_cast<std::size_t>(int64_t{p.tokens} * p.q_heads * p.d_v), NAN);
  c.lse.assign(static_cast<std::size_t>(int64_t{p.tokens} * p.q_heads), NAN);
  c.sink = {0.5f, -INFINITY, 2.0f, 0.0f};
  c.slots = {3,  -1, 19, 3,  0,  20, INT32_MIN, 7,  11,  // a duplicate, holes, one beyond the end
             -1, -1, -1, -1, -1, -1, -1,        -1, -1,  // nothing
             1,  2,  3,  4,  5,  6,  7,         8,  9};  // cut by its length
  c.len = {9, 9, 4};
  return c;
}

void bind(Case& c) {
  const SparseMlaProblem& p = c.problem;
  SparseMlaBuffers& b = c.buffers;
  b.q = {c.q.data(), int64_t{p.q_heads} * p.d_qk(), p.d_qk()};
  const int64_t row = int64_t{2} * p.d_qk();
  b.cache = {reinterpret_cast<std::byte*>(c.rows.data()), 4, row * p.page_size, row};
  b.topk_slots = {c.slots.data(), {p.tokens, p.topk}};
  b.topk_len = {c.len.data(), {p.tokens}};
  b.sink = {c.sink.data(), {p.q_heads}};
  b.out = {c.out.data(), int64_t{p.q_heads} * p.d_v, p.d_v};
  b.lse = {c.lse.data(), {p.tokens, p.q_heads}};
}

TEST(Plugin, ComputesTheContract) {
  ASSERT_NE(example(), nullptr);
  Case c = make_case();
  bind(c);
  ASSERT_TRUE(check(c.problem, c.buffers).ok()) << check(c.problem, c.buffers).message();
  const Status status = example()->run_mla(*example(), c.problem, c.buffers, cpu(), {});
  ASSERT_TRUE(status.ok()) << status.message();
  const oracle::MlaResult wanted = oracle::sparse_mla(c.problem, c.buffers);
  for (std::size_t i = 0; i < c.out.size(); ++i) ASSERT_NEAR(c.out[i], wanted.out[i], 2e-6) << "element " << i;
  for (std::size_t i = 0; i < c.lse.size(); ++i) {
    if (std::isinf(wanted.lse[i])) {
      ASSERT_EQ(c.lse[i], -INFINITY) << "head " << i;
    } else {
      ASSERT_NEAR(c.lse[i], wanted.lse[i], 2e-6) << "head " << i;
    }
  }
}

TEST(Plugin, RunRefusesWhatThePredicateRefuses) {
  ASSERT_NE(example(), nullptr);
  Case c = make_case();
  bind(c);
  c.problem.rows = RowFormat::v32_fp8;
  const Status status = example()->run_mla(*example(), c.problem, c.buffers, cpu(), {});
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_EQ(status.message(), "cpu.example: row format: wants 1 (bf16), has 2");
  EXPECT_TRUE(std::isnan(c.out[0]));  // not called
}

TEST(Plugin, ViewsThatTheAbiCannotExpressAreRefused) {
  ASSERT_NE(example(), nullptr);
  Case c = make_case();
  bind(c);
  c.buffers.topk_slots.strides[1] = 2;
  EXPECT_EQ(example()->run_mla(*example(), c.problem, c.buffers, cpu(), {}).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(std::isnan(c.out[0]));  // not called
}

TEST(Plugin, AMissingPointerNeverReachesTheLibrary) {
  ASSERT_NE(example(), nullptr);
  Case c = make_case();
  bind(c);
  const auto status_without = [&](auto remove) {
    SparseMlaBuffers broken = c.buffers;
    remove(broken);
    return example()->run_mla(*example(), c.problem, broken, cpu(), {});
  };
  const Status without_q = status_without([](SparseMlaBuffers& b) { b.q.data = nullptr; });
  EXPECT_EQ(without_q.code(), StatusCode::invalid_argument);
  EXPECT_EQ(without_q.message(), "sparse_mla: q is missing, wants data");
  EXPECT_EQ(status_without([](SparseMlaBuffers& b) { b.out.data = nullptr; }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(status_without([](SparseMlaBuffers& b) { b.cache.data = nullptr; }).code(), StatusCode::invalid_argument);
  EXPECT_EQ(status_without([](SparseMlaBuffers& b) { b.topk_slots.data = nullptr; }).code(),
            StatusCode::invalid_argument);
  EXPECT_TRUE(std::isnan(c.out[0]));                                                     // not called
  EXPECT_TRUE(status_without([](SparseMlaBuffers& b) { b.sink.data = nullptr; }).ok());  // optional
}

TEST(Plugin, AFailedRunCarriesTheLibrarysWords) {
  ASSERT_TRUE(load_backend_plugin(library("broken_run")).ok());
  const Backend* failing = find_backend("cpu.failing");
  ASSERT_NE(failing, nullptr);
  Case c = make_case();
  bind(c);
  const Status status = failing->run_mla(*failing, c.problem, c.buffers, cpu(), {});
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_EQ(status.message(), "cpu.failing: the scratch disk is full");
  // Not preferred: behind the rows of its kind.
  EXPECT_NE(std::string(in_order_for(cpu())[0]->name), "cpu.failing");
}

TEST(Plugin, ARefusalWithoutAReasonIsStillARefusal) {
  ASSERT_TRUE(load_backend_plugin(library("broken_reason")).ok());
  const Backend* silent = find_backend("cpu.silent");
  ASSERT_NE(silent, nullptr);
  EXPECT_FALSE(silent->admits_mla(*silent, {}, cpu()).admitted());
}

struct Broken {
  const char* name;
  StatusCode code;
  const char* words;
};

class BrokenPlugin : public testing::TestWithParam<Broken> {};

TEST_P(BrokenPlugin, IsTurnedAwayWithTheReason) {
  const std::size_t before = all_backends().size();
  const Status status = load_backend_plugin(library(GetParam().name));
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  EXPECT_NE(status.message().find(GetParam().words), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(GetParam().name), std::string::npos) << "the file is not named: " << status.message();
  EXPECT_EQ(all_backends().size(), before);
  EXPECT_EQ(find_backend("cpu.broken"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, BrokenPlugin,
    testing::Values(Broken{"broken_symbol", StatusCode::not_found, "exports no winnow_backend_v1"},
                    Broken{"broken_version", StatusCode::invalid_argument, "has ABI version 2, this Winnow wants 1"},
                    Broken{"broken_function", StatusCode::invalid_argument, "no run_mla beside its admits_mla"},
                    Broken{"broken_size", StatusCode::invalid_argument, "struct_size 8"},
                    Broken{"broken_name", StatusCode::invalid_argument, "cpu.reference is taken"},
                    Broken{"broken_kind", StatusCode::invalid_argument, "device_kind 7"},
                    Broken{"broken_host", StatusCode::invalid_argument, "returned no row"},
                    Broken{"no_such_library", StatusCode::io_error, "cannot be loaded"}),
    [](const testing::TestParamInfo<Broken>& one) { return std::string(one.param.name); });

TEST(Plugin, AFileThatIsNoLibraryIsAnErrorNotACrash) {
  const std::string path = testing::TempDir() + "/winnow_not_a_library.so";
  std::ofstream(path) << "a text, not a library\n";
  const Status status = load_backend_plugin(path);
  EXPECT_EQ(status.code(), StatusCode::io_error) << status.message();
  EXPECT_NE(status.message().find("cannot be loaded"), std::string::npos);
}

TEST(Plugin, TheSameLibraryTwiceIsANameTaken) {
  ASSERT_NE(example(), nullptr);
  const Status again = load_backend_plugin(library("example_backend"));
  EXPECT_EQ(again.code(), StatusCode::invalid_argument);
  EXPECT_NE(again.message().find("cpu.example is taken"), std::string::npos);
  EXPECT_NE(find_backend("cpu.example"), nullptr);  // the first one still works
}

}  // namespace
}  // namespace winnow
