// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace winnow::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Total order: higher score first, NaN last, then the lower index.
bool better(const std::vector<float>& score, int32_t a, int32_t b) {
  const float x = score[a], y = score[b];
  const bool nan_x = std::isnan(x), nan_y = std::isnan(y);
  if (nan_x || nan_y) return nan_x == nan_y ? a < b : nan_y;
  return x == y ? a < b : x > y;
}

void take_best(const std::vector<float>& score, int64_t count, std::vector<int32_t>& order) {
  order.resize(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int32_t a, int32_t b) { return better(score, a, b); });
}

void gate(const float* logits, int64_t experts, bool sigmoid, std::vector<float>& chance) {
  chance.resize(static_cast<std::size_t>(experts));
  if (sigmoid) {
    for (int64_t e = 0; e < experts; ++e) chance[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  const float peak = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += chance[e] = std::exp(logits[e] - peak);
  for (float& c : chance) c /= sum;
}

// Scores of experts outside the best groups become -inf. A group scores the sum of its two best.
void keep_groups(const RouterOptions& options, RouterScratch& s) {
  const auto experts = static_cast<int64_t>(s.score.size());
  const int64_t size = experts / options.groups;
  s.group.assign(static_cast<std::size_t>(options.groups), 0.0f);
  for (int64_t g = 0; g < options.groups; ++g) {
    float first = kLowest, second = kLowest;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float score = s.score[e];
      if (score > first) {
        second = first;
        first = score;
      } else if (score > second) {
        second = score;
      }
    }
    s.group[g] = size > 1 ? first + second : first;
  }
  take_best(s.group, options.groups_used, s.order);
  std::vector<bool> kept(static_cast<std::size_t>(options.groups));
  for (int64_t i = 0; i < options.groups_used; ++i) kept[s.order[i]] = true;
  for (int64_t e = 0; e < experts; ++e) {
    if (!kept[e / size]) s.score[e] = kLowest;
  }
}

}  // namespace

void choose_experts(const float* logits, const float* bias, int64_t experts, const RouterOptions& options,
                    RouterScratch& s, int32_t* ids, float* weights) {
  gate(logits, experts, options.sigmoid, s.chance);
  s.score = s.chance;
  if (bias != nullptr) {
    for (int64_t e = 0; e < experts; ++e) s.score[e] += bias[e];
  }
  if (options.groups > 1) keep_groups(options, s);
  take_best(s.score, options.experts_used, s.order);
  float sum = 0;
  for (int64_t i = 0; i < options.experts_used; ++i) {
    ids[i] = s.order[i];
    weights[i] = s.chance[ids[i]];
    sum += weights[i];
  }
  if (options.normalise) sum += 1e-20f;  // as the Hugging Face reference: all-zero chances give zero weights
  const float factor = options.normalise ? options.scale / sum : options.scale;
  for (int64_t i = 0; i < options.experts_used; ++i) weights[i] *= factor;
}

}  // namespace winnow::cpu
