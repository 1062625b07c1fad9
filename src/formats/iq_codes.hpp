// SPDX-License-Identifier: Apache-2.0
// Codebooks of the IQ types: the codes as stored here, and the tables of values that they expand to.
#pragma once

#include <cstdint>

namespace winnow {

// 8 elements per entry: 2 bits each. Levels 0, 1, 2 are 8, 25, 43 (IQ2) or -1, 0, 1 (IQ1).
extern const uint16_t kIq2XxsCodes[256], kIq2XsCodes[512], kIq2SCodes[1024], kIq1Codes[2048];
// 4 elements per entry: 3 bits each. Levels are 4, 12, 20, 28, 36, 44, 52, 62 (IQ3_XXS) or 1, 3, … 15 (IQ3_S).
extern const uint16_t kIq3XxsCodes[256], kIq3SCodes[512];

struct IqGrids {
  int8_t iq2_xxs[256][8], iq2_xs[512][8], iq2_s[1024][8], iq1[2048][8];
  int8_t iq3_xxs[256][4], iq3_s[512][4];
};
// Expanded at the first call, from any thread.
[[nodiscard]] const IqGrids& iq_grids();

}  // namespace winnow
