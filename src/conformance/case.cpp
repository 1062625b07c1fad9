// SPDX-License-Identifier: Apache-2.0
#include "conformance/case.hpp"

#include "conformance/merge_case.hpp"
#include "conformance/mla_case.hpp"
#include "conformance/select_case.hpp"
#include "conformance/write_case.hpp"

namespace winnow::conformance {

Result<std::unique_ptr<Case>> build_case(const CaseSpec& spec) {
  if (spec.kind == "mla") return MlaCase::build(spec);
  if (spec.kind == "select") return SelectCase::build(spec);
  if (spec.kind == "write") return WriteCase::build(spec);
  if (spec.kind == "gather") return GatherCase::build(spec);
  if (spec.kind == "merge") return MergeCase::build(spec);
  return error(StatusCode::invalid_argument, spec.name(), ": no such kind of case");
}

Tally run_case(const CaseSpec& spec, std::span<Target* const> targets, const Listener& listener) {
  Tally tally;
  Result<std::unique_ptr<Case>> built = build_case(spec);
  if (!built.ok()) {
    listener({"case", spec.name(), built.status().message()});
    ++tally.failed;
    return tally;
  }
  Case& test = **built;
  for (Target* target : targets) {
    const Outcome outcome = test.run(*target);
    const bool refusal = outcome.kind == Outcome::Kind::refused;
    const std::string text = outcome.kind == Outcome::Kind::ran ? test.judge(*target) : outcome.text;
    if (refusal) {
      ++tally.refused;
    } else if (outcome.kind == Outcome::Kind::ran && text.empty()) {
      ++tally.passed;
      continue;
    } else {
      ++tally.failed;
    }
    listener({target->name(), spec.name(), text, refusal});
  }
  return tally;
}

}  // namespace winnow::conformance
