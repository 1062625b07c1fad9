// SPDX-License-Identifier: Apache-2.0
// Contract types as structs of the C ABI, for callers of the library inside this program. Pointers are passed on.
#pragma once

#include "contract/cache_write.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"
#include "core/status.hpp"
#include "winnow/winnow.h"

namespace winnow::kernels {

// The last C ABI error of this thread as a Status.
[[nodiscard]] Status abi_status(winnow_status code);

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

// One name for each operation, whatever its structs.
[[nodiscard]] winnow_status call(const winnow_mla_problem& p, const winnow_mla_buffers& b, const winnow_execution& e);
[[nodiscard]] winnow_status call(const winnow_select_problem& p, const winnow_select_buffers& b,
                                 const winnow_execution& e);
[[nodiscard]] winnow_status call(const winnow_write_problem& p, const winnow_write_buffers& b,
                                 const winnow_execution& e);
[[nodiscard]] winnow_status call(const winnow_gather_problem& p, const winnow_gather_buffers& b,
                                 const winnow_execution& e);
[[nodiscard]] winnow_status call(const winnow_merge_problem& p, const winnow_merge_buffers& b,
                                 const winnow_execution& e);
// Bytes of workspace; 0 for operations that need none.
[[nodiscard]] winnow_status workspace(const winnow_mla_problem& p, int64_t& bytes);
[[nodiscard]] winnow_status workspace(const winnow_select_problem& p, int64_t& bytes);
[[nodiscard]] winnow_status workspace(const winnow_write_problem& p, int64_t& bytes);
[[nodiscard]] winnow_status workspace(const winnow_gather_problem& p, int64_t& bytes);
[[nodiscard]] winnow_status workspace(const winnow_merge_problem& p, int64_t& bytes);

}  // namespace winnow::kernels
