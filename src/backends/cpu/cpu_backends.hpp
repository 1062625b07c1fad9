// SPDX-License-Identifier: Apache-2.0
// The rows of the CPU backends. Both take any geometry of the contract, f32 and bf16 activations, every row and key
// format, on any x86-64 (or other) CPU. They need no workspace from the caller: each worker thread keeps a small
// scratch that grows to its largest use (rows of one tile, scores of one tile, top-k candidates).
#pragma once

#include "contract/backend.hpp"

namespace winnow {

// "cpu.simd": Google Highway, dispatched at run time from SSE2 to AVX-512; all threads of core/threads.hpp.
[[nodiscard]] const Backend& cpu_simd_backend();

// "cpu.reference": plain float loops, one obvious statement after the other. Slow on purpose.
[[nodiscard]] const Backend& cpu_reference_backend();

}  // namespace winnow
