// SPDX-License-Identifier: Apache-2.0
// Verify: runs a model on the inputs of a golden and says how far it agrees.
//
// Runs with f32 cache rows, f32 index keys and f32 activations, whatever a normal run uses, so that a difference is the
// model's semantics and not the cache's rounding. With weights that are not quantised (F32, F16, BF16) everything must
// agree: logits within logit_tolerance of the largest, argmax and selections wherever the choice is clearer than float
// error, greedy continuations token for token. Quantised weights cannot; there the mean negative log-likelihood and the
// codes in the answers decide, and the rest is reported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "models/model.hpp"
#include "tokenizer/tokenizer.hpp"
#include "verify/compare.hpp"
#include "verify/golden.hpp"

namespace winnow {

struct VerifyOptions {
  std::string attention;          // forced backend, or empty
  bool dense = false;             // ignore the indexer; selections are then not compared
  int32_t step_tokens = 512;      // prefill chunk
  double logit_tolerance = 2e-4;  // worst |difference| / largest |logit|
  double nll_tolerance = 5e-3;    // |mean - golden mean| / golden mean
  double tie_gap = 1e-5;          // selection scores closer than this share of the largest are float error apart
  bool exact = true;              // false: the weights are quantised, see above
};

struct GreedyAgreement {
  std::vector<int32_t> wanted, found;  // found stops being comparable behind the first difference
  int64_t first_difference = -1;       // index; -1: equal
  double gap = 0;                      // top-two gap there
};

struct VerifyCase {
  std::string name;
  int64_t tokens = 0;
  LogitErrors logits;
  ArgmaxAgreement argmax;
  std::vector<SelectionAgreement> selections;  // one per layer compared
  GreedyAgreement greedy;
  double nll = 0, golden_nll = 0;  // means; golden 0: not compared
  std::string code, answer;        // code: empty when none is expected
  std::vector<std::string> failures;
};

struct VerifyReport {
  bool exact = true;
  std::vector<VerifyCase> cases;
  [[nodiscard]] bool passed() const;
};

// True when a weight matrix of the checkpoint is stored in a block-quantised type.
[[nodiscard]] bool is_quantised(const Checkpoint& checkpoint);

// tokenizer: null when there is none; codes are then not looked for and a failure says so.
// corrupt_data when the golden does not fit the model (vocabulary, context); what Runner reports, with the input's
// name.
[[nodiscard]] Result<VerifyReport> verify(const Model& model, const Tokenizer* tokenizer, const Golden& golden,
                                          const VerifyOptions& options = {});

[[nodiscard]] std::string to_text(const VerifyReport& report);
[[nodiscard]] std::string to_json(const VerifyReport& report);

}  // namespace winnow
