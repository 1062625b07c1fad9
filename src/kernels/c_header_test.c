/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled as strict C99, never run: the header must mean something to a C compiler, and its layout must not move.
 * Sizes are those of ABI version 1 on a 64-bit machine; a field appended later changes the number here, knowingly. */
#include <stddef.h>

#include "winnow/winnow.h"

#define STATIC_ASSERT(name, condition) typedef char static_assert_##name[(condition) ? 1 : -1]

STATIC_ASSERT(device_info, sizeof(winnow_device_info) == 72 && offsetof(winnow_device_info, name) == 64);
STATIC_ASSERT(mla_problem, sizeof(winnow_mla_problem) == 44);
STATIC_ASSERT(mla_buffers, sizeof(winnow_mla_buffers) == 136);
STATIC_ASSERT(select_problem, sizeof(winnow_select_problem) == 48);
STATIC_ASSERT(select_buffers, sizeof(winnow_select_buffers) == 152);
STATIC_ASSERT(write_problem, sizeof(winnow_write_problem) == 40);
STATIC_ASSERT(write_buffers, sizeof(winnow_write_buffers) == 120);
STATIC_ASSERT(gather_problem, sizeof(winnow_gather_problem) == 24);
STATIC_ASSERT(gather_buffers, sizeof(winnow_gather_buffers) == 64);
STATIC_ASSERT(merge_problem, sizeof(winnow_merge_problem) == 24);
STATIC_ASSERT(merge_buffers, sizeof(winnow_merge_buffers) == 112);
STATIC_ASSERT(execution, sizeof(winnow_execution) == 32);
STATIC_ASSERT(status_width, sizeof(winnow_status) == 4);

/* Every function can be named from C. */
typedef void (*any_function)(void);
const any_function winnow_functions_named_from_c[] = {
    (any_function)winnow_abi_version,
    (any_function)winnow_version,
    (any_function)winnow_last_error,
    (any_function)winnow_init_device,
    (any_function)winnow_sparse_mla_admits,
    (any_function)winnow_index_select_admits,
    (any_function)winnow_cache_write_admits,
    (any_function)winnow_sparse_mla_workspace,
    (any_function)winnow_index_select_workspace,
    (any_function)winnow_sparse_mla,
    (any_function)winnow_index_select,
    (any_function)winnow_cache_write,
    (any_function)winnow_cache_gather,
    (any_function)winnow_merge_partials,
};
