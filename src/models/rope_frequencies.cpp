// SPDX-License-Identifier: Apache-2.0
#include "models/rope_frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace winnow {
namespace {

// The pair (a real number) that turns `turns` times within the original context.
double pair_that_turns(double turns, const ModelConfig& c) {
  const double width = static_cast<double>(c.head_rope);
  const double context = static_cast<double>(c.yarn.original_context);
  return width * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.rope_theta));
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& c) {
  const int64_t pairs = c.head_rope / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(pairs));
  const auto theta = static_cast<float>(c.rope_theta);
  for (int64_t j = 0; j < pairs; ++j) {
    frequencies[j] = 1.0f / std::pow(theta, static_cast<float>(2 * j) / static_cast<float>(c.head_rope));
  }
  if (!c.yarn.enabled) return frequencies;
  const double low = std::max(std::floor(pair_that_turns(c.yarn.beta_fast, c)), 0.0);
  double high = std::min(std::ceil(pair_that_turns(c.yarn.beta_slow, c)), static_cast<double>(c.head_rope - 1));
  if (low == high) high += 0.001;  // the reference's guard against a division by zero
  for (int64_t j = 0; j < pairs; ++j) {
    const auto ramp = static_cast<float>(std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0));
    const float keep = 1.0f - ramp;
    frequencies[j] = frequencies[j] / c.yarn.factor * (1.0f - keep) + frequencies[j] * keep;
  }
  return frequencies;
}

}  // namespace winnow
