// SPDX-License-Identifier: Apache-2.0
// Index selection case.
//
// scores=random draws normal data; the selected set may then differ from the oracle's only where float scores cannot
// tell the border (Target::index_score_error). Every other kind makes scores that are exact small integers in any
// order of summation and any format, so the selected set must be equal, ties included:
//   dims 0 to 5 of a key hold the base-16 digits of the wanted value, head 0 weighs digits 0 to 2 and head 1 digits 3
//   to 5 (with one head, that one weighs all); dim 7 is reserved for infinities; the other heads and dims add the same
//   small integer to every position.
#pragma once

#include <optional>

#include "conformance/case.hpp"
#include "conformance/random.hpp"

namespace winnow::conformance {

class SelectCase final : public Case {
 public:
  static Result<std::unique_ptr<Case>> build(const CaseSpec& spec);
  explicit SelectCase(const CaseSpec& spec);

  IndexSelectProblem problem;
  IndexSelectBuffers buffers;

  // What compare() does, on any result of this shape: the mutation tests judge wrong selections with it.
  [[nodiscard]] std::string compare_selection(const std::vector<int32_t>& out, const std::vector<int32_t>& out_len,
                                              double score_error) const;

 protected:
  Outcome run_on(Target& target) override { return target.run(problem, buffers, image_); }
  std::string compare(const Target& target) override;

 private:
  struct TokenTruth {
    int64_t length = 0;         // visible positions
    int64_t first = 0;          // first visible one
    std::vector<double> score;  // only when something has to be left out
    std::vector<double> magnitude;
    std::vector<int64_t> chosen;  // ascending, absolute positions
  };

  void fill_ranges();
  void fill_pages();
  void fill_keys();
  void fill_queries();
  void fill_key(int64_t sequence, int64_t position, std::byte* page, int64_t offset);
  void find_truth();
  [[nodiscard]] int64_t level(int64_t sequence, int64_t position) const;
  [[nodiscard]] bool is_special(int64_t position) const;
  [[nodiscard]] int64_t length_of(int64_t token) const;
  [[nodiscard]] std::string compare_token(int64_t token, const int32_t* out, int32_t out_len, double score_error) const;
  [[nodiscard]] std::string compare_set(int64_t token, const std::vector<int64_t>& got, double score_error) const;

  bool exact_ = false;
  int64_t sequences_ = 1;
  Random random_;
  std::vector<int64_t> sequence_length_;  // [sequences] positions that exist
  std::vector<TokenTruth> truth_;
  int32_t* page_table_ = nullptr;
  float* weight_ = nullptr;
};

}  // namespace winnow::conformance
