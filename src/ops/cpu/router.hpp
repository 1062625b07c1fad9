// SPDX-License-Identifier: Apache-2.0
// Choice of experts for one token.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.hpp"

namespace winnow::cpu {

struct RouterScratch {
  std::vector<float> chance, score, group;
  std::vector<int32_t> order;
};

// logits [experts] -> ids [experts_used] by falling score, weights [experts_used]. bias [experts] or null.
void choose_experts(const float* logits, const float* bias, int64_t experts, const RouterOptions& options,
                    RouterScratch& scratch, int32_t* ids, float* weights);

}  // namespace winnow::cpu
