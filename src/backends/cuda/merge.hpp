// SPDX-License-Identifier: Apache-2.0
// The launcher of the merge by LSE. The caller has asked check() first. It enqueues on the stream of `execution`, on
// the current device, and neither allocates nor synchronises. init_write() speaks for its kernel too.
#pragma once

#include "contract/backend.hpp"
#include "contract/merge.hpp"

namespace winnow::cuda {

[[nodiscard]] Status run_merge(const MergeProblem& problem, const MergeBuffers& buffers, const DeviceInfo& device,
                               const Execution& execution);

}  // namespace winnow::cuda
