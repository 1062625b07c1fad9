// SPDX-License-Identifier: Apache-2.0
// Backend: one row of the one table (select/table.cpp). Name, and for each operation a predicate and a function.
//
// The predicate sees facts only (no state, no device call) and its LaunchFacts are what the function then uses: the
// function calls the same predicate and returns `unsupported` with its reasons when it refuses. An operation that a
// row does not offer has both pointers null. A row of a backend that is absent from this build has `built` false and
// still has its predicates, so that a plan for a described device can speak of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/cache_write.hpp"
#include "contract/device_info.hpp"
#include "contract/index_select.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/verdict.hpp"
#include "core/status.hpp"

namespace winnow {

// Where a call runs and the scratch it may use. The caller owns both; `bytes` is at least the verdict's
// workspace_bytes. On CUDA, workspace is device memory and stream a cudaStream_t; on a CPU both may be null.
struct Execution {
  void* stream = nullptr;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

struct Backend {
  const char* name = "";  // "cpu.simd", "cuda.sm80": what --attention takes
  DeviceKind kind = DeviceKind::cpu;
  bool built = true;
  const char* why_absent = "";  // "not built into this program; ...", when built is false
  const void* self = nullptr;   // passed back by nobody but an out-of-tree row's own functions

  Verdict (*admits_mla)(const Backend&, const SparseMlaProblem&, const DeviceInfo&) = nullptr;
  Status (*run_mla)(const Backend&, const SparseMlaProblem&, const SparseMlaBuffers&, const DeviceInfo&,
                    const Execution&) = nullptr;

  Verdict (*admits_select)(const Backend&, const IndexSelectProblem&, const DeviceInfo&) = nullptr;
  Status (*run_select)(const Backend&, const IndexSelectProblem&, const IndexSelectBuffers&, const DeviceInfo&,
                       const Execution&) = nullptr;

  Verdict (*admits_write)(const Backend&, const CacheWriteProblem&, const DeviceInfo&) = nullptr;
  Status (*run_write)(const Backend&, const CacheWriteProblem&, const CacheWriteBuffers&, const DeviceInfo&,
                      const Execution&) = nullptr;
};

}  // namespace winnow
