// SPDX-License-Identifier: Apache-2.0
// Cache writer case: after the write every byte of both pools equals the oracle's, untouched slots and padding
// included. NaN is NaN whatever its payload.
#pragma once

#include "conformance/case.hpp"

namespace winnow::conformance {

class WriteCase final : public Case {
 public:
  static Result<std::unique_ptr<Case>> build(const CaseSpec& spec);
  explicit WriteCase(const CaseSpec& spec);

  CacheWriteProblem problem;
  CacheWriteBuffers buffers;
  std::vector<std::byte> expected_rows, expected_keys;

 protected:
  Outcome run_on(Target& target) override { return target.run(problem, buffers, image_); }
  std::string compare(const Target& target) override;

 private:
  [[nodiscard]] std::string compare_row(int64_t token, int64_t slot);
  [[nodiscard]] std::string compare_key(int64_t token, int64_t slot);
};

}  // namespace winnow::conformance
