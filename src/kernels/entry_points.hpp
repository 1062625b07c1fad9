// SPDX-License-Identifier: Apache-2.0
// What the CUDA library offers inside: defined beside the kernels (backends/cuda, indexer/cuda), called by the C ABI
// and by the row cuda.sm80 of the backend table. Predicates are host code without a CUDA header and are compiled into
// every build; functions that launch exist where WINNOW_CUDA is on.
//
// Launchers check nothing that check() and the predicate have not said: the caller asks those first. They enqueue on
// the stream of `execution`, on the current device, and neither allocate nor synchronise.
#pragma once

#include "contract/backend.hpp"
#include "contract/cache_write.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/verdict.hpp"
#include "core/status.hpp"

namespace winnow::cuda {

[[nodiscard]] Verdict admits_mla(const SparseMlaProblem& problem, const DeviceInfo& device);
[[nodiscard]] Verdict admits_select(const IndexSelectProblem& problem, const DeviceInfo& device);
[[nodiscard]] Verdict admits_write(const CacheWriteProblem& problem, const DeviceInfo& device);

[[nodiscard]] Status run_mla(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, const DeviceInfo& device,
                             const Execution& execution);
[[nodiscard]] Status run_select(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers,
                                const DeviceInfo& device, const Execution& execution);
[[nodiscard]] Status run_write(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers,
                               const DeviceInfo& device, const Execution& execution);
[[nodiscard]] Status run_gather(const RowGatherProblem& problem, const RowGatherBuffers& buffers,
                                const DeviceInfo& device, const Execution& execution);
[[nodiscard]] Status run_merge(const MergeProblem& problem, const MergeBuffers& buffers, const DeviceInfo& device,
                               const Execution& execution);

// Function attributes (dynamic shared memory above 48 KB) of every kernel, on the current device. Outside of captures.
[[nodiscard]] Status init_mla(const DeviceInfo& device);
[[nodiscard]] Status init_select(const DeviceInfo& device);
[[nodiscard]] Status init_write(const DeviceInfo& device);  // writer, gather and merge

}  // namespace winnow::cuda
