// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace winnow {

// Runs `rounds` of 12 independent float32 FMAs on full vectors and nothing else; returns the FLOP done. The result of
// the arithmetic is kept alive.
double run_fma_peak(int64_t rounds);

}  // namespace winnow
