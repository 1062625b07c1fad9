// SPDX-License-Identifier: Apache-2.0
// Case: built from its text, with its data, its oracle result and its judgement.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conformance/case_spec.hpp"
#include "conformance/image.hpp"
#include "conformance/target.hpp"

namespace winnow::conformance {

class Case {
 public:
  explicit Case(CaseSpec spec) : spec_(std::move(spec)) {}
  virtual ~Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  [[nodiscard]] const CaseSpec& spec() const { return spec_; }
  [[nodiscard]] Image& image() { return image_; }

  // Poisons the outputs and lets the target work. May be called again: the same data every time.
  [[nodiscard]] Outcome run(Target& target) {
    image_.begin_run();
    return run_on(target);
  }

  // Empty when the image holds the right results and nothing else was touched; otherwise what is wrong and where.
  [[nodiscard]] std::string judge(const Target& target) {
    const std::string wrong = compare(target);
    const std::string damage = image_.violations();
    return wrong.empty() ? damage : damage.empty() ? wrong : concat(wrong, "; ", damage);
  }

 protected:
  virtual Outcome run_on(Target& target) = 0;
  // May use up the outputs (it resets what it has looked at, to find writes elsewhere).
  virtual std::string compare(const Target& target) = 0;

  CaseSpec spec_;
  Image image_;
};

// Data, and with it the oracle's answer, follow from the text alone.
[[nodiscard]] Result<std::unique_ptr<Case>> build_case(const CaseSpec& spec);

struct Tally {
  int64_t passed = 0, failed = 0, refused = 0;
};
struct Finding {
  std::string target, name, text;
  bool refusal = false;
};
// Called after each (case, target): findings only, or every result when verbose is wanted by the caller.
using Listener = std::function<void(const Finding&)>;

// Builds the case once and runs it on every target. A refusal is reported and counted, never passed over in silence.
[[nodiscard]] Tally run_case(const CaseSpec& spec, std::span<Target* const> targets, const Listener& listener);

}  // namespace winnow::conformance
