// SPDX-License-Identifier: Apache-2.0
// The launcher of sparse MLA. The caller has asked check() and admits_mla() first.
#pragma once

#include "contract/backend.hpp"

namespace winnow::cuda {

// Shared-memory attributes of every kernel on the current device. Once per device, outside of captures.
[[nodiscard]] Status init_mla(const DeviceInfo& device);

// Enqueues on execution.stream. unsupported: addresses or strides that are not multiples of 16 bytes.
[[nodiscard]] Status run_mla(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, const DeviceInfo& device,
                             const Execution& execution);

}  // namespace winnow::cuda
