// SPDX-License-Identifier: Apache-2.0
// Every case of cases/ on every CPU row of the table: a new row is tested by being in it. Slow cases run on the first
// row alone.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>

#include "conformance/case.hpp"
#include "core/threads.hpp"
#include "select/select.hpp"

namespace winnow::conformance {
namespace {

struct Sum {
  Tally tally;
  std::map<std::string, int64_t> refusals;  // "backend: reason" -> cases
};

// Cases are spread over the threads; inside one the backends then run on one thread. What several threads do to one
// call is tested beside the backends.
Sum run_all(const std::vector<CaseSpec>& cases, std::span<Target* const> targets) {
  Sum sum;
  std::mutex mutex;
  parallel_for(static_cast<int64_t>(cases.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const CaseSpec& spec = cases[static_cast<std::size_t>(i)];
      const Tally tally = run_case(spec, targets, [&](const Finding& finding) {
        const std::lock_guard lock(mutex);
        if (finding.refusal) {
          ++sum.refusals[concat(finding.target, ", ", spec.kind, ": ", finding.text)];
        } else {
          ADD_FAILURE() << finding.target << ": " << finding.name << "\n  " << finding.text;
        }
      });
      const std::lock_guard lock(mutex);
      sum.tally.passed += tally.passed;
      sum.tally.failed += tally.failed;
      sum.tally.refused += tally.refused;
    }
  });
  return sum;
}

std::vector<CaseSpec> cases_of(std::string_view kind, bool slow) {
  const Result<std::vector<CaseSpec>> all = load_cases("cases");
  EXPECT_TRUE(all.ok()) << all.status().message();
  std::vector<CaseSpec> chosen;
  if (!all.ok()) return chosen;
  for (const CaseSpec& spec : *all) {
    if (spec.kind == kind && spec.slow == slow) chosen.push_back(spec);
  }
  EXPECT_FALSE(chosen.empty()) << kind;
  return chosen;
}

// The rows that must take everything that the contract allows; others may refuse, and are then printed.
bool takes_everything(const std::string& refusal) {
  return refusal.rfind("cpu.simd,", 0) == 0 || refusal.rfind("cpu.reference,", 0) == 0;
}

void run_kind(std::string_view kind, bool slow) {
  const DeviceInfo cpu{.kind = DeviceKind::cpu, .name = "host"};
  std::vector<std::unique_ptr<HostBackend>> backends;
  std::vector<Target*> targets;
  for (const Backend* row : in_order_for(cpu)) {
    if (row->kind != DeviceKind::cpu || !row->built || (slow && !targets.empty())) continue;
    backends.push_back(std::make_unique<HostBackend>(*row, cpu));
    targets.push_back(backends.back().get());
  }
  ASSERT_GE(targets.size(), slow ? 1u : 2u);
  const std::vector<CaseSpec> cases = cases_of(kind, slow);
  const Sum sum = run_all(cases, targets);
  EXPECT_GT(sum.tally.passed, 0);
  std::cout << cases.size() << " cases: " << sum.tally.passed << " passed, " << sum.tally.failed << " failed, "
            << sum.tally.refused << " refused\n";
  for (const auto& [reason, count] : sum.refusals) {
    std::cout << "  skipped " << count << ": " << reason << "\n";
    EXPECT_FALSE(takes_everything(reason)) << reason;
  }
}

TEST(Conformance, SparseMla) { run_kind("mla", false); }
TEST(Conformance, IndexSelect) { run_kind("select", false); }
TEST(Conformance, CacheWrite) { run_kind("write", false); }
TEST(Conformance, SlowSparseMla) { run_kind("mla", true); }
TEST(Conformance, SlowIndexSelect) { run_kind("select", true); }

}  // namespace
}  // namespace winnow::conformance
