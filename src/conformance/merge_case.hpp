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

 private:
  // [tokens, q_heads] how far apart the logarithms are whose differences go into exp.
  [[nodiscard]] std::vector<double> distances() const;
};

}  // namespace winnow::conformance
