// SPDX-License-Identifier: Apache-2.0
// The row of the portable CUDA kernels. Host only, no CUDA header: its predicates are those of the launchers, so that a
// plan for a described GPU names the kernels that would run there, with their tiles, shared memory and splits.
#pragma once

#include "contract/backend.hpp"

namespace winnow {

// "cuda.sm80": one family from SM80 to SM121 within 99 KB of shared memory. The kernels are called through the library
// winnow_kernels; this program has no forward pass on a GPU, so here the row is never built and has no functions.
[[nodiscard]] const Backend& cuda_sm80_backend();

}  // namespace winnow
