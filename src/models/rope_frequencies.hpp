// SPDX-License-Identifier: Apache-2.0
// Angle per position of each rotated pair.
#pragma once

#include <vector>

#include "models/config.hpp"

namespace winnow {

// [head_rope / 2], in float32 arithmetic as the Hugging Face reference has it: 1 / theta^(2j / width), and with YaRN
// (arXiv 2309.00071) blended with the same over `factor` between the pairs that turn beta_fast and beta_slow times
// within the original context.
[[nodiscard]] std::vector<float> rope_frequencies(const ModelConfig& config);

}  // namespace winnow
