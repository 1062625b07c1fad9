// SPDX-License-Identifier: Apache-2.0
// Case for the merge of partial results by LSE.
#pragma once

#include "conformance/case.hpp"
#include "conformance/compare.hpp"

namespace winnow::conformance {

class MergeCase final : public Case {
 public:
  static Result<std::unique_ptr<Case>> build(const CaseSpec& spec);
  explicit MergeCase(const CaseSpec& spec);

  MergeProblem problem;
  MergeBuffers buffers;
  AttentionValues expected;

 protected:
  Outcome run_on(Target& target) override { return target.run(problem, buffers, image_); }
  std::string compare(const Target& target) override;
};

}  // namespace winnow::conformance
