// SPDX-License-Identifier: Apache-2.0
#include "conformance/merge_case.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/mla_case.hpp"

namespace winnow::conformance {

Result<std::unique_ptr<Case>> MergeCase::build(const CaseSpec& spec) {
  auto made = std::make_unique<MergeCase>(spec);
  WINNOW_TRY(check(made->problem, made->buffers).in(spec.name()));
  return std::unique_ptr<Case>(std::move(made));
}

MergeCase::MergeCase(const CaseSpec& spec) : Case(spec) {
  Random random(hash_bytes(spec.given.data(), spec.given.size()));
  MergeProblem& p = problem;
  p.parts = static_cast<int32_t>(spec.integer("parts"));
  p.tokens = static_cast<int32_t>(spec.integer("tokens"));
  p.q_heads = static_cast<int32_t>(spec.integer("heads"));
  p.d_v = static_cast<int32_t>(spec.integer("d_v"));
  p.out_type = dtype_of(spec, "out");
  const int64_t rows = int64_t{p.tokens} * p.q_heads;
  auto* out = image_.add_array<float>("part_out", Role::input, p.parts * rows * p.d_v);
  auto* lse = image_.add_array<float>("part_lse", Role::input, p.parts * rows);
  const std::string& empties = spec.word("parts_empty");
  for (int64_t i = 0; i < p.parts * rows; ++i) {
    const int64_t part = i / rows;
    lse[i] = random.normal() * static_cast<float>(spec.integer("lse_spread"));
    const bool empty = empties == "all" || (empties == "some" && random.below(2) == 0) ||
                       (empties == "first" && part == 0) || (empties == "last" && part + 1 == p.parts);
    if (empty) lse[i] = -std::numeric_limits<float>::infinity();  // and its out stays NaN
    for (int64_t d = 0; d < p.d_v && !empty; ++d) out[i * p.d_v + d] = random.normal();
  }
  buffers.part_out = TensorView<const float>(out, {p.parts, p.tokens, p.q_heads, p.d_v});
  buffers.part_lse = TensorView<const float>(lse, {p.parts, p.tokens, p.q_heads});
  buffers.sink = add_sink(image_, random, spec, p.q_heads);
  buffers.out = add_heads(image_, "out", Role::output, p.out_type, p.tokens, p.q_heads, p.d_v, spec.word("strides"));
  buffers.lse = TensorView<float>(image_.add_array<float>("lse", Role::output, rows), {p.tokens, p.q_heads});
  image_.seal();
  oracle::MergeResult result = oracle::merge(p, buffers);
  expected = {std::move(result.out), std::move(result.lse)};
}

std::vector<double> MergeCase::distances() const {
  std::vector<double> result;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    for (int64_t h = 0; h < problem.q_heads; ++h) {
      double lowest = 0, highest = 0;  // products with base-2 logarithms round at the size of the numbers themselves
      const auto widen = [&](double x) {
        if (std::isfinite(x)) lowest = std::min(lowest, x), highest = std::max(highest, x);
      };
      for (int32_t part = 0; part < problem.parts; ++part) widen(buffers.part_lse(part, t, h));
      if (!buffers.sink.empty()) widen(buffers.sink(h));
      result.push_back(highest - lowest);
    }
  }
  return result;
}

std::string MergeCase::compare(const Target&) {
  // A weighted sum of a few floats. exp(x) in float is off by half an ulp of x: the share of the score, whose magnitude
  // is the widest distance between the numbers that are subtracted before exp.
  Tolerance tolerance{.relative = 0x1p-18, .of_rms = 0x1p-18, .diff = 1e-10, .lse = 2e-6, .score = 0x1p-24};
  if (problem.out_type == DType::bf16) tolerance.relative = 0x1p-8, tolerance.diff = 5e-6;
  AttentionValues got;
  got.out = take_heads(buffers.out, problem.out_type, problem.tokens, problem.q_heads, problem.d_v);
  got.lse = take_matrix(buffers.lse);
  const std::string found =
      compare_attention({problem.tokens, problem.q_heads, problem.d_v}, expected, got, distances(), tolerance);
  return found.empty() ? leftovers(image_, "out") : found;
}

}  // namespace winnow::conformance
