// SPDX-License-Identifier: Apache-2.0
#include "conformance/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/concat.hpp"

namespace winnow::conformance {
namespace {
constexpr int64_t kGroup = 128;

class Comparison {
 public:
  Comparison(const AttentionShape& shape, const AttentionValues& want, const AttentionValues& got,
             const std::vector<double>& magnitude, const Tolerance& tolerance)
      : shape_(shape), want_(want), got_(got), magnitude_(magnitude), tolerance_(tolerance) {}

  std::string masks() const {
    for (std::size_t i = 0; i < want_.out.size(); ++i) {
      if (std::isfinite(want_.out[i]) != std::isfinite(got_.out[i])) {
        return concat("out", place(static_cast<int64_t>(i)), " is ", got_.out[i], ", wants ", want_.out[i]);
      }
    }
    for (std::size_t i = 0; i < want_.lse.size(); ++i) {
      const double want = want_.lse[i], got = got_.lse[i];
      const bool same = std::isinf(want) ? got == want : std::isfinite(want) == std::isfinite(got);
      if (!same) return concat("lse", row_place(static_cast<int64_t>(i)), " is ", got, ", wants ", want);
    }
    return {};
  }

  // The element that exceeds its bound most, over all of them.
  std::string elements() const {
    double worst = 1;
    int64_t at = -1;
    for (int64_t row = 0; row < shape_.tokens * shape_.heads; ++row) {
      for (int64_t first = 0; first < shape_.d_v; first += kGroup) {
        const int64_t last = std::min(shape_.d_v, first + kGroup);
        const double rms = group_rms(row, first, last);
        for (int64_t d = first; d < last; ++d) {
          const int64_t i = row * shape_.d_v + d;
          const double excess = excess_of(i, rms, slack(row));
          if (excess > worst) worst = excess, at = i;
        }
      }
    }
    if (at < 0) return {};
    return concat("out", place(at), " is ", got_.out[static_cast<std::size_t>(at)], ", wants ",
                  want_.out[static_cast<std::size_t>(at)], ": ", worst, " times its tolerance");
  }

  std::string differences() const {
    for (int64_t first = 0; first < shape_.d_v; first += kGroup) {
      const int64_t last = std::min(shape_.d_v, first + kGroup);
      double cross = 0, squares = 0, widest = 0;
      for (int64_t row = 0; row < shape_.tokens * shape_.heads; ++row) {
        for (int64_t d = first; d < last; ++d) {
          const auto i = static_cast<std::size_t>(row * shape_.d_v + d);
          if (!std::isfinite(want_.out[i])) continue;
          widest = std::max(widest, slack(row));
          cross += want_.out[i] * got_.out[i];
          squares += want_.out[i] * want_.out[i] + got_.out[i] * got_.out[i];
        }
      }
      const double diff = squares > 0 ? 1 - 2 * cross / squares : 0;
      const double allowed = tolerance_.diff + widest * widest;
      if (diff > allowed) {
        return concat("columns ", first, " to ", last - 1, ": difference ", diff, ", allowed ", allowed);
      }
    }
    return {};
  }

  std::string lse() const {
    for (std::size_t i = 0; i < want_.lse.size(); ++i) {
      if (!std::isfinite(want_.lse[i])) continue;
      const double allowed = tolerance_.lse + score_error(static_cast<int64_t>(i)) + 0x1p-22 * std::abs(want_.lse[i]);
      if (!(std::abs(want_.lse[i] - got_.lse[i]) <= allowed)) {
        return concat("lse", row_place(static_cast<int64_t>(i)), " is ", got_.lse[i], ", wants ", want_.lse[i],
                      " within ", allowed);
      }
    }
    return {};
  }

 private:
  [[nodiscard]] std::string row_place(int64_t row) const {
    return concat("[token ", row / shape_.heads, ", head ", row % shape_.heads, "]");
  }
  [[nodiscard]] std::string place(int64_t i) const {
    const int64_t row = i / shape_.d_v;
    return concat("[token ", row / shape_.heads, ", head ", row % shape_.heads, ", column ", i % shape_.d_v, "]");
  }
  [[nodiscard]] double score_error(int64_t row) const {
    return magnitude_.empty() ? 0 : tolerance_.score * magnitude_[static_cast<std::size_t>(row)];
  }
  // Weights exp(score) are off by the error of a score, twice: in the sum of weights and in the sum of values.
  [[nodiscard]] double slack(int64_t row) const { return 2 * score_error(row); }

  [[nodiscard]] double group_rms(int64_t row, int64_t first, int64_t last) const {
    double sum = 0;
    for (int64_t d = first; d < last; ++d) {
      const double value = want_.out[static_cast<std::size_t>(row * shape_.d_v + d)];
      sum += std::isfinite(value) ? value * value : 0;
    }
    return std::sqrt(sum / static_cast<double>(last - first));
  }

  [[nodiscard]] double excess_of(int64_t i, double rms, double slack) const {
    const double want = want_.out[static_cast<std::size_t>(i)];
    const double distance = std::abs(got_.out[static_cast<std::size_t>(i)] - want);
    if (!std::isfinite(want) || distance == 0) return 0;
    // What lies below the smallest normal float may come out as zero.
    constexpr double kSmallest = std::numeric_limits<float>::min();
    const double allowed =
        (tolerance_.relative + slack) * std::abs(want) + (tolerance_.of_rms + slack) * rms + kSmallest;
    return distance / allowed;
  }

  const AttentionShape& shape_;
  const AttentionValues& want_;
  const AttentionValues& got_;
  const std::vector<double>& magnitude_;
  const Tolerance& tolerance_;
};
}  // namespace

std::string compare_attention(const AttentionShape& shape, const AttentionValues& want, const AttentionValues& got,
                              const std::vector<double>& magnitude, const Tolerance& tolerance) {
  const Comparison comparison(shape, want, got, magnitude, tolerance);
  for (const auto step : {&Comparison::masks, &Comparison::elements, &Comparison::differences, &Comparison::lse}) {
    if (std::string found = (comparison.*step)(); !found.empty()) return found;
  }
  return {};
}

}  // namespace winnow::conformance
