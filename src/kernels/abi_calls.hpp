// SPDX-License-Identifier: Apache-2.0
// The C ABI of the kernel library, for callers inside this program: one name whatever the operation, errors as Status.
#pragma once

#include "contract/to_c.hpp"
#include "core/status.hpp"
#include "winnow/winnow.h"

namespace winnow::kernels {

// The last C ABI error of this thread as a Status.
[[nodiscard]] Status abi_status(winnow_status code);

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
