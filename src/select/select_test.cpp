// SPDX-License-Identifier: Apache-2.0
// Choice and explanation over rows made here, so that order, refusal and force are seen without any kernel.
#include "select/select.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>

namespace winnow {
namespace {

Verdict admits_any_mla(const Backend&, const SparseMlaProblem& problem, const DeviceInfo&) {
  Verdict verdict;
  verdict.launch.heads_per_block = 32;
  verdict.launch.rows_per_tile = 24;
  verdict.launch.stages = 2;
  verdict.launch.splits = problem.tokens == 1 ? 3 : 1;
  verdict.launch.shared_bytes = 61 * 1024;
  return verdict;
}
Verdict admits_32_heads(const Backend&, const SparseMlaProblem& problem, const DeviceInfo& device) {
  Verdict verdict;
  verdict.need(device.sm == 120, "sm", 120, device.sm);
  verdict.need(problem.q_heads % 32 == 0, "q_heads", "a multiple of 32", problem.q_heads);
  return verdict;
}
Verdict admits_fp8_rows(const Backend&, const SparseMlaProblem& problem, const DeviceInfo&) {
  Verdict verdict;
  verdict.need(problem.rows == RowFormat::v32_fp8, "rows", "v32_fp8", name_of(problem.rows));
  return verdict;
}
Verdict admits_usual_pages(const Backend&, const SparseMlaProblem& problem, const DeviceInfo&) {
  Verdict verdict;
  verdict.need(problem.page_size == 64, "page_size", 64, problem.page_size);
  return verdict;
}
Verdict admits_any_select(const Backend&, const IndexSelectProblem&, const DeviceInfo&) { return {}; }
Verdict admits_short_select(const Backend&, const IndexSelectProblem& problem, const DeviceInfo&) {
  Verdict verdict;
  verdict.need(problem.index_heads <= 32, "index_heads", "at most 32", problem.index_heads);
  return verdict;
}
Verdict admits_any_write(const Backend&, const CacheWriteProblem&, const DeviceInfo&) { return {}; }

Backend row_named(const char* name, DeviceKind kind) {
  Backend row;
  row.name = name;
  row.kind = kind;
  return row;
}

// Rows like a real table's: a special one, a portable one, one for CPUs, and one that this build lacks.
struct Rows {
  Backend special = row_named("cuda.special", DeviceKind::cuda);
  Backend portable = row_named("cuda.portable", DeviceKind::cuda);
  Backend cpu = row_named("cpu.plain", DeviceKind::cpu);
  Backend absent = row_named("cuda.absent", DeviceKind::cuda);

  Rows() {
    special.admits_mla = admits_32_heads;
    portable.admits_mla = cpu.admits_mla = absent.admits_mla = admits_any_mla;
    portable.admits_select = cpu.admits_select = admits_any_select;
    portable.admits_write = cpu.admits_write = admits_any_write;
    absent.built = false;
    absent.why_absent = "not built (SOME_OPTION is OFF)";
  }
  [[nodiscard]] std::vector<const Backend*> all() const { return {&special, &absent, &portable, &cpu}; }
};

AttentionNeeds glm_needs() {
  AttentionNeeds needs;
  needs.q_heads = 80;
  needs.d_nope = 512;
  needs.d_rope = 64;
  needs.d_v = 512;
  needs.topk = 2048;
  needs.index_heads = 32;
  needs.index_dim = 128;
  needs.context = 131072;
  return needs;
}

DeviceInfo a30() {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = "NVIDIA A30";
  device.sm = 80;
  return device;
}

AttentionPath chosen(const Rows& rows, const AttentionNeeds& needs, const DeviceInfo& device,
                     std::string_view forced = {}, bool ignore_absence = false) {
  Result<AttentionPath> path = choose_path_among(rows.all(), needs, device, forced, ignore_absence);
  EXPECT_TRUE(path.ok()) << path.status().message();
  return path.value();
}

TEST(Select, NoRowsGiveNoPathAndAProof) {
  const Result<AttentionPath> path = choose_path_among({}, glm_needs(), a30());
  ASSERT_TRUE(path.ok());
  EXPECT_FALSE(path.value().admitted());
  EXPECT_NE(why_no_path(path.value()).find("the table has no row for it"), std::string::npos);
}

TEST(Select, VerdictsStandInOrderAndTheFirstAdmittedIsChosen) {
  const Rows rows;
  const AttentionPath path = chosen(rows, glm_needs(), a30());
  ASSERT_TRUE(path.admitted());
  const PathStep& decode = path.step("decode attention");
  ASSERT_EQ(decode.considered.size(), 4u);
  EXPECT_STREQ(decode.considered[0].backend->name, "cuda.special");
  EXPECT_EQ(decode.chosen, &rows.portable);
  EXPECT_EQ(decode.launch.splits, 3);
  EXPECT_EQ(path.step("prefill attention").launch.splits, 1);
}

TEST(Select, EveryRefusalIsCollectedNotTheFirst) {
  const Rows rows;
  const AttentionPath path = chosen(rows, glm_needs(), a30());
  const Verdict& special = path.step("decode attention").considered[0].verdict;
  ASSERT_EQ(special.refusals.size(), 2u);
  EXPECT_EQ(clause(special.refusals[0]), "sm: wants 120, has 80");
  EXPECT_EQ(clause(special.refusals[1]), "q_heads: wants a multiple of 32, has 80");
}

TEST(Select, ExplanationNamesEveryRowWithItsState) {
  const std::string text = explain(chosen(Rows(), glm_needs(), a30()));
  EXPECT_NE(
      text.find("sparse attention on NVIDIA A30 (sm_80)\n  q_heads 80, rows bf16 512 + 64, topk 2048, index 32 x 128 "
                "keys bf16"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("  decode attention, 1 token\n"
                      "    refused  cuda.special   sm: wants 120, has 80; q_heads: wants a multiple of 32, has 80\n"
                      "    refused  cuda.absent    built: wants yes, has no: not built (SOME_OPTION is OFF)\n"
                      "    chosen   cuda.portable  first admitted; 32 heads per block, 24 rows per tile, 2 stages, "
                      "3 splits, 61 KB shared memory\n"
                      "  every operation\n"
                      "    refused  cpu.plain      device: wants a CPU, has an NVIDIA GPU\n"),
            std::string::npos)
      << text;
}

TEST(Select, AnAbsentRowIsChosenOnlyWhenAbsenceIsIgnored) {
  const Rows rows;
  EXPECT_EQ(chosen(rows, glm_needs(), a30()).step("decode attention").chosen, &rows.portable);
  EXPECT_EQ(chosen(rows, glm_needs(), a30(), {}, true).step("decode attention").chosen, &rows.absent);
}

TEST(Select, AnAbsentRowWithoutPredicatesIsRefusedAtEveryStep) {
  Rows rows;
  rows.absent.admits_mla = nullptr;
  const AttentionPath path = chosen(rows, glm_needs(), a30(), {}, true);
  for (const PathStep& step : path.steps) {
    const auto absent = std::find_if(step.considered.begin(), step.considered.end(),
                                     [&](const Considered& one) { return one.backend == &rows.absent; });
    ASSERT_NE(absent, step.considered.end()) << step.operation;
    EXPECT_FALSE(absent->verdict.admitted()) << step.operation;
  }
}

TEST(Select, AModelWithoutIndexerHasNoSelectStep) {
  AttentionNeeds needs = glm_needs();
  needs.index_heads = 0;
  const Rows rows;
  const AttentionPath path = chosen(rows, needs, a30());
  EXPECT_EQ(path.steps.size(), 3u);
  EXPECT_EQ(path.step("index select").chosen, nullptr);
}

TEST(Select, AForcedBackendIsTakenEvenWhenItIsNotTheFirst) {
  Rows rows;
  rows.absent.built = true;
  EXPECT_EQ(chosen(rows, glm_needs(), a30()).step("decode attention").chosen, &rows.absent);
  const AttentionPath path = chosen(rows, glm_needs(), a30(), "cuda.portable");
  EXPECT_EQ(path.step("decode attention").chosen, &rows.portable);
  EXPECT_NE(explain(path).find("admitted cuda.absent    set aside: cuda.portable is forced"), std::string::npos)
      << explain(path);
}

TEST(Select, AForcedBackendLeavesStepsThatItDoesNotOfferFree) {
  const Rows rows;
  AttentionNeeds needs = glm_needs();
  needs.q_heads = 64;
  DeviceInfo rtx = a30();
  rtx.sm = 120;
  const AttentionPath path = chosen(rows, needs, rtx, "cuda.special");
  ASSERT_TRUE(path.admitted());
  EXPECT_EQ(path.step("decode attention").chosen, &rows.special);
  EXPECT_EQ(path.step("cache write").chosen, &rows.portable);
}

TEST(Select, AForcedBackendThatRefusesIsAnErrorThatListsWhatWorks) {
  const Rows rows;
  const AttentionPath path = chosen(rows, glm_needs(), a30(), "cuda.special");
  EXPECT_FALSE(path.admitted());
  const std::string proof = why_no_path(path);
  EXPECT_NE(proof.find("because nothing here does prefill attention, decode attention:\n"
                       "    cuda.special (forced): sm: wants 120, has 80; q_heads: wants a multiple of 32, has 80\n"),
            std::string::npos)
      << proof;
  EXPECT_NE(proof.find("    a free choice of backend (cuda.special is forced)\n    --attention cuda.portable\n"),
            std::string::npos)
      << proof;
}

TEST(Select, AnUnknownForcedNameListsTheValidOnes) {
  const Rows rows;
  const Result<AttentionPath> path = choose_path_among(rows.all(), glm_needs(), a30(), "cuda.speical");
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(path.status().message().find("cuda.special, cuda.absent, cuda.portable, cpu.plain"), std::string::npos);
}

TEST(Select, APathNeedsEveryStepAndTheProofNamesTheOneThatFails) {
  Rows rows;
  rows.portable.admits_select = admits_short_select;
  AttentionNeeds needs = glm_needs();
  needs.index_heads = 64;
  const AttentionPath path = chosen(rows, needs, a30());
  EXPECT_FALSE(path.admitted());
  EXPECT_EQ(path.step("decode attention").chosen, &rows.portable);  // attention works, the path does not
  const std::string proof = why_no_path(path);
  EXPECT_NE(
      proof.find("because nothing here does index select:\n    cuda.portable: index_heads: wants at most 32, has 64\n"
                 "    cpu.plain: for another kind of device\n"),
      std::string::npos)
      << proof;
  EXPECT_NE(proof.find("no attention path exists on NVIDIA A30 (sm_80)"), std::string::npos);
}

TEST(Select, ChangesThatAreNamedWereTriedAndWork) {
  Rows rows;
  rows.portable.admits_mla = admits_fp8_rows;
  const AttentionPath path = chosen(rows, glm_needs(), a30());
  ASSERT_FALSE(path.admitted());
  const std::vector<std::string> changes = changes_that_help(path);
  EXPECT_TRUE(std::count(changes.begin(), changes.end(), "cache rows as v32_fp8 (now bf16)")) << why_no_path(path);
  EXPECT_FALSE(std::count(changes.begin(), changes.end(), "cache rows as f32 (now bf16)"));
  AttentionNeeds changed = glm_needs();
  changed.rows = RowFormat::v32_fp8;
  EXPECT_TRUE(chosen(rows, changed, a30()).admitted());
}

TEST(Select, OddPagesAreRefusedAndTheUsualPagesAreNamed) {
  Rows rows;
  rows.portable.admits_mla = admits_usual_pages;
  AttentionNeeds needs = glm_needs();
  needs.page_size = 48;
  const std::vector<std::string> changes = changes_that_help(chosen(rows, needs, a30()));
  EXPECT_TRUE(std::count(changes.begin(), changes.end(), "pages of 64 slots (now 48)"));
}

TEST(Select, AnAdmittedPathHasNoProofAgainstIt) {
  const Rows rows;
  const AttentionPath path = chosen(rows, glm_needs(), a30());
  EXPECT_TRUE(why_no_path(path).empty());
  EXPECT_TRUE(changes_that_help(path).empty());
}

TEST(Select, WhateverTheNeedsTheChoiceIsTheFirstAdmitted) {
  const Rows rows;
  const bool holds = rc::check("the choice is the first admitted row, and none only when all refuse", [&rows] {
    AttentionNeeds needs = glm_needs();
    needs.q_heads = *rc::gen::inRange(1, 300);
    needs.rows = *rc::gen::element(RowFormat::bf16, RowFormat::v32_fp8);
    DeviceInfo device = a30();
    device.sm = *rc::gen::element(0, 75, 80, 89, 90, 120);
    const AttentionPath path = choose_path_among(rows.all(), needs, device).value();
    for (const PathStep& step : path.steps) {
      const auto first = std::find_if(step.considered.begin(), step.considered.end(),
                                      [](const Considered& one) { return one.verdict.admitted(); });
      RC_ASSERT(step.chosen == (first == step.considered.end() ? nullptr : first->backend));
    }
  });
  EXPECT_TRUE(holds);
}

// From here on the real table.

TEST(Table, NamesAreUniqueAndEveryRowIsFound) {
  std::vector<std::string> names;
  for (const Backend* row : all_backends()) {
    names.emplace_back(row->name);
    EXPECT_EQ(find_backend(row->name), row);
    EXPECT_TRUE(row->built || row->why_absent[0] != '\0') << row->name << " does not say why it is absent";
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(find_backend("cpu.none"), nullptr);
}

TEST(Table, ABuiltRowHasBothFunctionsOfEveryOperationItOffers) {
  for (const Backend* row : all_backends()) {
    if (!row->built) continue;
    EXPECT_EQ(row->admits_mla == nullptr, row->run_mla == nullptr) << row->name;
    EXPECT_EQ(row->admits_select == nullptr, row->run_select == nullptr) << row->name;
    EXPECT_EQ(row->admits_write == nullptr, row->run_write == nullptr) << row->name;
  }
}

TEST(Table, ADeviceTriesRowsOfItsKindFirst) {
  DeviceInfo cpu;
  const std::vector<const Backend*> rows = in_order_for(cpu);
  ASSERT_EQ(rows.size(), all_backends().size());
  EXPECT_STREQ(rows[0]->name, "cpu.simd");
  EXPECT_STREQ(rows[1]->name, "cpu.reference");
  EXPECT_EQ(in_order_for(a30())[0]->kind, DeviceKind::cuda);
}

TEST(Table, ACpuHasAPathForPublishedModelsAndIsExplained) {
  AttentionNeeds needs = glm_needs();
  needs.activations = DType::f32;
  const Result<AttentionPath> path = choose_path(needs, host_cpu());
  ASSERT_TRUE(path.ok());
  EXPECT_TRUE(path.value().admitted()) << why_no_path(path.value());
  EXPECT_STREQ(path.value().step("decode attention").chosen->name, "cpu.simd");
  const Result<AttentionPath> forced = choose_path(needs, host_cpu(), "cpu.reference");
  ASSERT_TRUE(forced.ok());
  EXPECT_STREQ(forced.value().step("decode attention").chosen->name, "cpu.reference");
}

TEST(Table, RowsWithoutMeaningAreNotAdded) {
  static Backend nameless, half, empty, taken;
  half.name = "cpu.half";
  half.admits_mla = admits_any_mla;
  empty.name = "cpu.empty";
  taken.name = "cpu.simd";
  const std::size_t before = all_backends().size();
  EXPECT_EQ(add_backend(nameless, true).code(), StatusCode::invalid_argument);
  EXPECT_NE(add_backend(half, true).message().find("no run_mla beside its admits_mla"), std::string::npos);
  EXPECT_NE(add_backend(empty, true).message().find("offers no operation"), std::string::npos);
  EXPECT_NE(add_backend(taken, true).message().find("is taken"), std::string::npos);
  EXPECT_EQ(all_backends().size(), before);
}

TEST(HostCpu, FactsArePlausibleAndCheap) {
  const DeviceInfo host = host_cpu();
  EXPECT_EQ(host.kind, DeviceKind::cpu);
  EXPECT_FALSE(host.described);
  EXPECT_FALSE(host.name.empty());
  EXPECT_GE(host.units, 1);
  EXPECT_GT(host.memory_bytes, int64_t{64} << 20);
  EXPECT_GT(host.bandwidth, 1e8);
  EXPECT_LT(host.bandwidth, 1e14);
  EXPECT_GT(host.matrix_flops, 1e8);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(host_cpu().bandwidth, host.bandwidth);  // measured once
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace winnow
