// SPDX-License-Identifier: Apache-2.0
// What both CPU backends admit: everything that the contract allows, on a CPU. Private to src/backends/cpu.
#pragma once

#include "contract/backend.hpp"
#include "contract/refused.hpp"

namespace winnow::cpu {

[[nodiscard]] Verdict admits_mla(const Backend&, const SparseMlaProblem& problem, const DeviceInfo& device);
[[nodiscard]] Verdict admits_select(const Backend&, const IndexSelectProblem& problem, const DeviceInfo& device);
[[nodiscard]] Verdict admits_write(const Backend&, const CacheWriteProblem& problem, const DeviceInfo& device);

// The same bytes from both backends: quantisation has one definition (contract/quantise.hpp).
[[nodiscard]] Status run_write(const Backend&, const CacheWriteProblem&, const CacheWriteBuffers&, const DeviceInfo&,
                               const Execution&);

}  // namespace winnow::cpu
