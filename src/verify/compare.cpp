// SPDX-License-Identifier: Apache-2.0
#include "verify/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace winnow {

int64_t argmax_of(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

double top_two_gap(std::span<const float> logits) {
  if (logits.size() < 2) return 0;
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (const float value : logits) {
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return static_cast<double>(first) - second;
}

double nll_of(std::span<const float> logits, int64_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(id)];
}

LogitComparer::LogitComparer(std::span<const float> golden) {
  for (const float value : golden) errors_.largest = std::max(errors_.largest, std::abs(static_cast<double>(value)));
}

void LogitComparer::add(int64_t row, std::span<const float> golden, std::span<const float> got) {
  const double scale = errors_.largest > 0 ? errors_.largest : 1;
  for (std::size_t id = 0; id < golden.size(); ++id) {
    double difference = std::abs(static_cast<double>(got[id]) - golden[id]) / scale;
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    sum_ += difference;
    if (errors_.worst_row < 0 || difference > errors_.worst) {
      errors_.worst = difference;
      errors_.worst_row = row;
      errors_.worst_id = static_cast<int64_t>(id);
    }
  }
  errors_.compared += static_cast<int64_t>(golden.size());
}

LogitErrors LogitComparer::result() const {
  LogitErrors errors = errors_;
  if (errors.compared > 0) errors.mean = sum_ / static_cast<double>(errors.compared);
  return errors;
}

ArgmaxAgreement agree(std::span<const ArgmaxRow> rows, double error) {
  ArgmaxAgreement agreement;
  for (const ArgmaxRow& row : rows) {
    ++agreement.compared;
    if (row.equal) {
      ++agreement.equal;
    } else if (row.gap <= error) {
      ++agreement.ties;
    } else if (agreement.first_wrong < 0) {
      agreement.first_wrong = row.row;
    }
  }
  return agreement;
}

namespace {

std::vector<int32_t> as_set(std::span<const int32_t> positions, int64_t position) {
  std::vector<int32_t> set;
  for (const int32_t p : positions) {
    if (p >= 0 && p <= position) set.push_back(p);
  }
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

}  // namespace

void add_selection(SelectionAgreement& agreement, int64_t position, std::span<const int32_t> golden,
                   std::span<const int32_t> got, double boundary_gap, double tie_gap) {
  const std::vector<int32_t> wanted = as_set(golden, position), found = as_set(got, position);
  ++agreement.compared;
  if (wanted == found) {
    ++agreement.equal;
    return;
  }
  for (const int32_t p : wanted) agreement.missed += !std::binary_search(found.begin(), found.end(), p);
  agreement.widest_wrong = std::max(agreement.widest_wrong, boundary_gap);
  if (wanted.size() == found.size() && boundary_gap <= tie_gap) {
    ++agreement.ties;
  } else if (agreement.first_wrong < 0) {
    agreement.first_wrong = position;
  }
}

}  // namespace winnow
