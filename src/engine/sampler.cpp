// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.hpp"

#include <algorithm>
#include <cmath>

namespace winnow {
namespace {

template <class T>
Status in_range(const char* what, T value, bool inside, const char* range) {
  return inside ? Status() : error(StatusCode::invalid_argument, what, " is ", value, ", wants ", range);
}

// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio, splitmix64's increment

}  // namespace

// The seed is mixed before it is used as a starting point: neighbouring seeds must not be shifted copies.
double uniform(uint64_t seed, uint64_t n) {
  return static_cast<double>(mix(mix(seed + kGolden) + (n + 1) * kGolden) >> 11) * 0x1p-53;
}

Status check(const SamplingOptions& o) {
  WINNOW_TRY(in_range("temperature", o.temperature, o.temperature >= 0 && std::isfinite(o.temperature), "0 or more"));
  WINNOW_TRY(in_range("top_k", o.top_k, o.top_k >= 0, "0 (off) or more"));
  WINNOW_TRY(in_range("top_p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0, up to 1 (off)"));
  WINNOW_TRY(in_range("min_p", o.min_p, o.min_p >= 0 && o.min_p <= 1, "0 (off) to 1"));
  WINNOW_TRY(in_range("repetition_penalty", o.repetition_penalty,
                      o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "above 0; 1 is off"));
  WINNOW_TRY(in_range("max_tokens", o.max_tokens, o.max_tokens >= 1, "1 or more"));
  for (const std::string& stop : o.stop) {
    if (stop.empty())
      return error(StatusCode::invalid_argument, "a stop string is empty; it would end every text at once");
  }
  return Status();
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_[i] = {logits[i], static_cast<int32_t>(i)};
  if (options_.repetition_penalty != 1) penalise(history);
  if (options_.temperature == 0) {
    return std::max_element(candidates_.begin(), candidates_.end(),
                            [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; })
        ->id;
  }
  for (Candidate& c : candidates_) c.logit /= options_.temperature;
  if (options_.top_k > 0) keep_top_k();
  if (options_.top_p < 1) keep_top_p();
  if (options_.min_p > 0) keep_min_p();
  return draw();
}

void Sampler::penalise(std::span<const int32_t> history) {
  seen_.assign(candidates_.size(), false);
  for (int32_t id : history) {
    if (id < 0 || static_cast<std::size_t>(id) >= seen_.size() || seen_[id]) continue;
    seen_[id] = true;
    float& logit = candidates_[id].logit;
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  }
}

namespace {
constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                   kLikelier);
  candidates_.resize(k);
}

// A heap gives the likeliest ones in turn, so that a vocabulary is not sorted for the sake of a few.
void Sampler::keep_top_p() {
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return kLikelier(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  const float peak = candidates_.front().logit;
  double all = 0;
  for (const Candidate& c : candidates_) all += std::exp(static_cast<double>(c.logit - peak));
  double reached = 0;
  auto end = candidates_.end();
  while (end != candidates_.begin() && reached < options_.top_p * all) {
    std::pop_heap(candidates_.begin(), end, less_likely);
    --end;
    reached += std::exp(static_cast<double>(end->logit - peak));
  }
  candidates_.erase(candidates_.begin(), end);
}

void Sampler::keep_min_p() {
  const float peak =
      std::max_element(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit < b.logit;
      })->logit;
  std::erase_if(candidates_,
                [&](const Candidate& c) { return std::exp(static_cast<double>(c.logit - peak)) < options_.min_p; });
}

int32_t Sampler::draw() {
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  float peak = candidates_.front().logit;
  for (const Candidate& c : candidates_) peak = std::max(peak, c.logit);
  weights_.clear();
  double all = 0;
  for (const Candidate& c : candidates_) weights_.push_back(all += std::exp(static_cast<double>(c.logit - peak)));
  const double point = uniform(options_.seed, draws_++) * all;
  const auto it = std::upper_bound(weights_.begin(), weights_.end(), point);
  const auto last = static_cast<std::ptrdiff_t>(candidates_.size()) - 1;  // rounding may put the point at the very end
  return candidates_[std::min(it - weights_.begin(), last)].id;
}

}  // namespace winnow
