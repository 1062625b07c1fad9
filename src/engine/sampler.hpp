// SPDX-License-Identifier: Apache-2.0
// Sampler: the next token from logits.
//
// In order: repetition penalty (Keskar et al. 2019: positive logits divided, negative multiplied) on every token of the
// history; temperature; top-k; top-p (the smallest set of likeliest tokens that reaches p, the first always); min-p
// (at least that share of the likeliest one's probability); then one draw. Equal logits count in order of id.
//
// The n-th draw of a sequence depends on the seed and n alone, so the same seed gives the same text on every machine
// that computes the same logits, whatever else runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace winnow {

struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repetition_penalty = 1;
  uint64_t seed = 0;
  int64_t max_tokens = 512;
  std::vector<std::string> stop;     // strings that end the text; they are not part of it
  std::vector<int32_t> stop_tokens;  // besides the model's own
};

// invalid_argument naming the option, the value and the range.
[[nodiscard]] Status check(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // history: prompt and generated tokens. Logits must be finite.
  [[nodiscard]] int32_t sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void penalise(std::span<const int32_t> history);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  [[nodiscard]] int32_t draw();

  SamplingOptions options_;
  uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
  std::vector<bool> seen_;
};

// Uniform in [0, 1): the n-th number of a seed.
[[nodiscard]] double uniform(uint64_t seed, uint64_t n);

}  // namespace winnow
