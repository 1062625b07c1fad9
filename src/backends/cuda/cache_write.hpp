// SPDX-License-Identifier: Apache-2.0
// The launchers of the cache writer and the row gather. The caller has asked check() first and, for the writer,
// admits_write(). They enqueue on the stream of `execution`, on the current device, and neither allocate nor
// synchronise.
#pragma once

#include "contract/backend.hpp"

namespace winnow::cuda {

// What the kernels of writer, gather and merge need on the current device. Once per device, outside of captures.
[[nodiscard]] Status init_write(const DeviceInfo& device);

[[nodiscard]] Status run_write(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers,
                               const DeviceInfo& device, const Execution& execution);
// unsupported: rows of f32.
[[nodiscard]] Status run_gather(const RowGatherProblem& problem, const RowGatherBuffers& buffers,
                                const DeviceInfo& device, const Execution& execution);

}  // namespace winnow::cuda
