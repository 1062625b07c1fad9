// SPDX-License-Identifier: Apache-2.0
// Comparisons with a golden, free of any model: numbers in, agreement out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow {

[[nodiscard]] int64_t argmax_of(std::span<const float> logits);          // the lowest index wins a tie
[[nodiscard]] double top_two_gap(std::span<const float> logits);         // 0 for a vocabulary of one
[[nodiscard]] double nll_of(std::span<const float> logits, int64_t id);  // natural log

struct LogitErrors {
  double largest = 0;          // |logit| of the golden
  double worst = 0, mean = 0;  // |got - golden| / largest
  int64_t worst_row = -1, worst_id = -1;
  int64_t compared = 0;  // elements
};

// Rows one at a time, so that nobody holds two logit matrices. A NaN counts as an infinite error.
class LogitComparer {
 public:
  explicit LogitComparer(std::span<const float> golden);
  void add(int64_t row, std::span<const float> golden, std::span<const float> got);
  [[nodiscard]] LogitErrors result() const;

 private:
  LogitErrors errors_;
  double sum_ = 0;
};

// Whether the largest logit is the same token. A difference where the two largest lie closer together than `error` is
// a tie: rounding decides there.
struct ArgmaxAgreement {
  int64_t compared = 0, equal = 0, ties = 0;
  int64_t first_wrong = -1;  // row
  [[nodiscard]] int64_t wrong() const { return compared - equal - ties; }
};
struct ArgmaxRow {
  int64_t row;
  bool equal;
  double gap;  // between the two largest
};
[[nodiscard]] ArgmaxAgreement agree(std::span<const ArgmaxRow> rows, double error);

// Selected sets. A difference where the cut is no clearer than `tie_gap` (the gap between the last score taken and the
// first left out, as a share of the largest) is a tie.
struct SelectionAgreement {
  int64_t layer = 0;
  int64_t compared = 0, equal = 0, ties = 0;
  int64_t first_wrong = -1;  // position
  double widest_wrong = 0;   // boundary gap of the clearest cut that differs, ties included
  int64_t missed = 0;        // golden positions not selected, over all rows
  [[nodiscard]] int64_t wrong() const { return compared - equal - ties; }
};

// golden, got: positions in any order; entries below 0 or above `position` are padding.
void add_selection(SelectionAgreement& agreement, int64_t position, std::span<const int32_t> golden,
                   std::span<const int32_t> got, double boundary_gap, double tie_gap);

}  // namespace winnow
