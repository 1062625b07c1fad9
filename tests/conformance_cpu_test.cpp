// SPDX-License-Identifier: Apache-2.0
// Every case of cases/ on both CPU backends. Slow cases run on cpu.simd alone.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <mutex>

#include "backends/cpu/cpu_backends.hpp"
#include "conformance/case.hpp"
#include "core/threads.hpp"

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

void run_kind(std::string_view kind, bool slow) {
  DeviceInfo cpu{.kind = DeviceKind::cpu, .name = "host"};
  HostBackend reference(cpu_reference_backend(), cpu), simd(cpu_simd_backend(), cpu);
  std::vector<Target*> targets{&simd};
  if (!slow) targets.push_back(&reference);
  const std::vector<CaseSpec> cases = cases_of(kind, slow);
  const Sum sum = run_all(cases, targets);
  EXPECT_GT(sum.tally.passed, 0);
  EXPECT_EQ(sum.tally.refused, 0);  // a CPU backend takes everything that the contract allows
  std::cout << cases.size() << " cases: " << sum.tally.passed << " passed, " << sum.tally.failed << " failed, "
            << sum.tally.refused << " refused\n";
  for (const auto& [reason, count] : sum.refusals) std::cout << "  skipped " << count << ": " << reason << "\n";
}

TEST(Conformance, SparseMla) { run_kind("mla", false); }
TEST(Conformance, IndexSelect) { run_kind("select", false); }
TEST(Conformance, CacheWrite) { run_kind("write", false); }
TEST(Conformance, SlowSparseMla) { run_kind("mla", true); }
TEST(Conformance, SlowIndexSelect) { run_kind("select", true); }

}  // namespace
}  // namespace winnow::conformance
