// SPDX-License-Identifier: Apache-2.0
// Structs of the C ABI as contract types, and verdicts back. Host only.
//
// Versions: a struct is read up to its struct_size, fields beyond are 0. A larger struct than this library knows is
// accepted while its unknown tail is zero, and refused otherwise: a newer caller asked for what is not here.
#pragma once

#include <cstddef>
#include <cstring>

#include "contract/cache_write.hpp"
#include "contract/device_info.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/verdict.hpp"
#include "core/status.hpp"
#include "winnow/winnow.h"

namespace winnow::kernels {

template <class T>
[[nodiscard]] Result<T> read_struct(const T* given, const char* name) {
  if (given == nullptr) return error(StatusCode::invalid_argument, name, " is null");
  const std::size_t size = given->struct_size;
  if (size < 2 * sizeof(int32_t)) {
    return error(StatusCode::invalid_argument, name, ".struct_size is ", size, "; set it to sizeof of the struct");
  }
  T known{};
  std::memcpy(&known, given, size < sizeof(T) ? size : sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return error(StatusCode::unsupported, name, " uses a field at byte ", i, " that this library (ABI version ",
                 WINNOW_ABI_VERSION, ") does not know; use a newer library");
  }
  return known;
}

[[nodiscard]] SparseMlaProblem problem_of(const winnow_mla_problem& from);
[[nodiscard]] SparseMlaBuffers buffers_of(const winnow_mla_buffers& from, const SparseMlaProblem& problem);
[[nodiscard]] IndexSelectProblem problem_of(const winnow_select_problem& from);
[[nodiscard]] IndexSelectBuffers buffers_of(const winnow_select_buffers& from, const IndexSelectProblem& problem);
[[nodiscard]] CacheWriteProblem problem_of(const winnow_write_problem& from);
[[nodiscard]] CacheWriteBuffers buffers_of(const winnow_write_buffers& from, const CacheWriteProblem& problem);
[[nodiscard]] RowGatherProblem problem_of(const winnow_gather_problem& from);
[[nodiscard]] RowGatherBuffers buffers_of(const winnow_gather_buffers& from, const RowGatherProblem& problem);
[[nodiscard]] MergeProblem problem_of(const winnow_merge_problem& from);
[[nodiscard]] MergeBuffers buffers_of(const winnow_merge_buffers& from, const MergeProblem& problem);

// Enumerations arrive as plain integers: a value outside the list must not become an enum.
[[nodiscard]] Status check_enums(const winnow_mla_problem& problem);
[[nodiscard]] Status check_enums(const winnow_select_problem& problem);
[[nodiscard]] Status check_enums(const winnow_write_problem& problem);
[[nodiscard]] Status check_enums(const winnow_gather_problem& problem);
[[nodiscard]] Status check_enums(const winnow_merge_problem& problem);

[[nodiscard]] DeviceInfo device_of(const winnow_device_info& from);
// Fills as much as info->struct_size covers. The name is borrowed from `from`.
void write_device(const DeviceInfo& from, winnow_device_info& info);
// Hands every refusal to verdict->refuse, or fills verdict->launch.
void write_verdict(const Verdict& from, winnow_verdict& verdict);

// "sparse_mla: q_heads wants 1 to 128, found 200; rows wants ..." as an unsupported Status; ok when admitted.
[[nodiscard]] Status status_of(const Verdict& verdict, const char* operation);

}  // namespace winnow::kernels
