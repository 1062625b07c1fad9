// SPDX-License-Identifier: Apache-2.0
// Comparison of attention results with the oracle, scaled to the data.
//
// In this order: the places of values that are not finite (in out NaN and infinity count alike, since which of the two
// a sum of infinities becomes follows from its order; an infinite LSE must be that infinity); every element |got -
// want| <= relative * |want| + of_rms * rms, where rms is over the same token's and head's group of 128 columns (one
// fp8 scale), so that a small group beside a large one is still looked at; the cosine-like difference 1 - 2 sum(xy) /
// sum(x^2 + y^2) per group of columns over all tokens and heads, which sees small errors everywhere; the LSE. A mean
// never excuses a bad element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::conformance {

struct AttentionShape {
  int64_t tokens = 0, heads = 0, d_v = 0;
};

// Tolerances and their reasons stand where they are made (mla_case.cpp, merge_case.cpp).
struct Tolerance {
  double relative = 0, of_rms = 0;
  double diff = 0;
  double lse = 0;    // absolute
  double score = 0;  // relative rounding error of a score; times the magnitude of the scores it widens the bounds
};

struct AttentionValues {
  std::vector<double> out;  // [tokens, heads, d_v]
  std::vector<double> lse;  // [tokens, heads], or empty: not wanted
};

// magnitude: [tokens, heads] what score errors scale with, or empty for 0. Empty answer: equal within the tolerance;
// otherwise the worst element with its coordinates.
[[nodiscard]] std::string compare_attention(const AttentionShape& shape, const AttentionValues& want,
                                            const AttentionValues& got, const std::vector<double>& magnitude,
                                            const Tolerance& tolerance);

}  // namespace winnow::conformance
