// SPDX-License-Identifier: Apache-2.0
// Contract types as structs of the C ABI (include/winnow/winnow.h). Pointers are passed on, and c_device borrows the
// name: what a struct points to must outlive it. The C structs have one stride for each tensor; check() is what ensures
// that no other stride matters.
#pragma once

#include "contract/backend.hpp"
#include "contract/cache_write.hpp"
#include "contract/device_info.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"
#include "winnow/winnow.h"

namespace winnow {

// Every field zero, struct_size set.
template <class T>
[[nodiscard]] T sized_struct() {
  T to{};
  to.struct_size = sizeof to;
  return to;
}

[[nodiscard]] winnow_device_info c_device(const DeviceInfo& from);
[[nodiscard]] winnow_execution c_execution(const Execution& from);
[[nodiscard]] winnow_mla_problem c_problem(const SparseMlaProblem& from);
[[nodiscard]] winnow_mla_buffers c_buffers(const SparseMlaBuffers& from);
[[nodiscard]] winnow_select_problem c_problem(const IndexSelectProblem& from);
[[nodiscard]] winnow_select_buffers c_buffers(const IndexSelectBuffers& from);
[[nodiscard]] winnow_write_problem c_problem(const CacheWriteProblem& from);
[[nodiscard]] winnow_write_buffers c_buffers(const CacheWriteBuffers& from);
[[nodiscard]] winnow_gather_problem c_problem(const RowGatherProblem& from);
[[nodiscard]] winnow_gather_buffers c_buffers(const RowGatherBuffers& from);
[[nodiscard]] winnow_merge_problem c_problem(const MergeProblem& from);
[[nodiscard]] winnow_merge_buffers c_buffers(const MergeBuffers& from);

}  // namespace winnow
