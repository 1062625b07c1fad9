// SPDX-License-Identifier: Apache-2.0
// The launcher of index selection. The caller has asked check() and admits_select() first. It enqueues on the stream of
// `execution`, on the current device, and neither allocates nor synchronises.
#pragma once

#include "contract/backend.hpp"

namespace winnow::cuda {

// Function attributes (dynamic shared memory above 48 KB) of every kernel on the current device. Once per device,
// outside of captures.
[[nodiscard]] Status init_select(const DeviceInfo& device);

// invalid_argument: a workspace smaller than plan_select says.
[[nodiscard]] Status run_select(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers,
                                const DeviceInfo& device, const Execution& execution);

}  // namespace winnow::cuda
