// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace winnow {

// Pairs of a rotated vector: (2j, 2j+1) or (j, j + width/2).
enum class RopeLayout { interleaved, half_split };

}  // namespace winnow
