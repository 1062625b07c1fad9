// SPDX-License-Identifier: Apache-2.0
// The C ABI of the kernel library (include/winnow/winnow.h, section 2). Every call: read the versioned structs, check
// sizes and pointers, ask the predicate, launch. Exceptions stop here.
#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include <cuda_runtime.h>

#include "backends/cuda/cache_write.hpp"
#include "backends/cuda/cache_write_admit.hpp"
#include "backends/cuda/merge.hpp"
#include "backends/cuda/mla_admit.hpp"
#include "backends/cuda/mla_run.hpp"
#include "core/checked.hpp"
#include "core/cuda_status.hpp"
#include "indexer/cuda/select.hpp"
#include "indexer/cuda/select_admit.hpp"
#include "kernels/c_structs.hpp"
#include "kernels/device_facts.hpp"
#include "winnow/winnow.h"

#ifndef WINNOW_VERSION
#error "the build sets WINNOW_VERSION"
#endif

namespace winnow::kernels {
namespace {

constexpr const char* kVersion = WINNOW_VERSION;
constexpr int kMaxDevices = 64;
constexpr uintptr_t kWorkspaceAlignment = 256;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

winnow_status finish(Status status) noexcept {
  if (status.ok()) return WINNOW_OK;
  last_error() = status.message();
  return static_cast<winnow_status>(status.code());
}

// Runs `body`, which returns a Status, and lets nothing through.
template <class Body>
winnow_status guarded(Body&& body) noexcept {
  try {
    return finish(body());
  } catch (const std::bad_alloc&) {
    return finish(Status(StatusCode::out_of_memory, "host memory is exhausted"));
  } catch (const std::exception& e) {
    return finish(Status(StatusCode::internal, e.what()));
  } catch (...) {
    return finish(Status(StatusCode::internal, "an unknown exception reached the C ABI"));
  }
}

// Facts of the devices that winnow_init_device has seen. Entries are written once and never change.
struct Devices {
  std::mutex mutex;
  std::array<std::optional<DeviceInfo>, kMaxDevices> facts;
};

Devices& devices() {
  static Devices all;
  return all;
}

Status initialise(int device) {
  int count = 0;
  WINNOW_CUDA_TRY(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count || device >= kMaxDevices) {
    return error(StatusCode::invalid_argument, "device is ", device, ", this machine has ", count, " CUDA devices");
  }
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (all.facts[device].has_value()) return {};
  int before = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&before));
  WINNOW_CUDA_TRY(cudaSetDevice(device));
  const auto prepare = [device]() -> Result<DeviceInfo> {
    WINNOW_TRY_ASSIGN(DeviceInfo info, device_facts(device));
    WINNOW_TRY(cuda::init_mla(info));
    WINNOW_TRY(cuda::init_select(info));
    WINNOW_TRY(cuda::init_write(info));
    return info;
  };
  Result<DeviceInfo> info = prepare();
  WINNOW_CUDA_TRY(cudaSetDevice(before));
  WINNOW_TRY_ASSIGN(all.facts[device], std::move(info));
  return {};
}

Result<const DeviceInfo*> current_device() {
  int device = 0;
  WINNOW_CUDA_TRY(cudaGetDevice(&device));
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (device >= kMaxDevices || !all.facts[device].has_value()) {
    return error(StatusCode::invalid_argument, "CUDA device ", device, " was not initialised; call winnow_init_device(",
                 device, ", NULL) first");
  }
  return &*all.facts[device];
}

Result<Execution> execution_of(const winnow_execution* given, const char* operation, int64_t wanted_bytes) {
  WINNOW_TRY_ASSIGN(const winnow_execution from, read_struct(given, "execution"));
  if (from.workspace_bytes < wanted_bytes || (wanted_bytes > 0 && from.workspace == nullptr)) {
    return error(StatusCode::invalid_argument, operation, ": workspace has ",
                 from.workspace == nullptr ? 0 : from.workspace_bytes, " bytes, wants ", wanted_bytes);
  }
  if (wanted_bytes > 0 && reinterpret_cast<uintptr_t>(from.workspace) % kWorkspaceAlignment != 0) {
    return error(StatusCode::invalid_argument, operation, ": workspace is not aligned to ", kWorkspaceAlignment,
                 " bytes");
  }
  return Execution{from.stream, static_cast<std::byte*>(from.workspace), from.workspace_bytes};
}

// A predicate asked through the border: `Problem` is the C struct, `admits` the predicate of its contract type.
template <class Problem, class Admits>
Status ask(const Problem* problem, const winnow_device_info* device, winnow_verdict* verdict, Admits admits) {
  WINNOW_TRY_ASSIGN(const Problem from, read_struct(problem, "problem"));
  WINNOW_TRY(check_enums(from));
  if (verdict == nullptr) return error(StatusCode::invalid_argument, "verdict is null");
  if (device == nullptr) {
    WINNOW_TRY_ASSIGN(const DeviceInfo* current, current_device());
    write_verdict(admits(problem_of(from), *current), *verdict);
    return {};
  }
  WINNOW_TRY_ASSIGN(const winnow_device_info described, read_struct(device, "device"));
  write_verdict(admits(problem_of(from), device_of(described)), *verdict);
  return {};
}

template <class Problem, class Admits>
Status workspace_of(const Problem* problem, int64_t* bytes, const char* operation, Admits admits) {
  WINNOW_TRY_ASSIGN(const Problem from, read_struct(problem, "problem"));
  WINNOW_TRY(check_enums(from));
  if (bytes == nullptr) return error(StatusCode::invalid_argument, "bytes is null");
  WINNOW_TRY_ASSIGN(const DeviceInfo* device, current_device());
  const Verdict verdict = admits(problem_of(from), *device);
  WINNOW_TRY(status_of(verdict, operation));
  *bytes = verdict.launch.workspace_bytes;
  return {};
}

// Few tokens are split over more CTAs than many, so their partial results can be the larger ones. Above this many
// tokens no list is split on a device of up to 188 SMs (8 heads on 108 SMs: the last at 5,292).
constexpr int32_t kSplitTokens = 8192;

int64_t most_workspace_below(SparseMlaProblem problem, const DeviceInfo& device) {
  int64_t most = 0;
  const int32_t tokens = std::min(problem.tokens, kSplitTokens);
  for (problem.tokens = 1; problem.tokens < tokens; ++problem.tokens) {
    most = std::max(most, cuda::plan_mla(problem, device).workspace_bytes);
  }
  return most;
}

// An operation with a predicate: structs, rules, verdict, workspace, launch.
template <class Problem, class Buffers, class Admits, class Run>
Status launch(const Problem* problem, const Buffers* buffers, const winnow_execution* execution, const char* operation,
              Admits admits, Run run) {
  WINNOW_TRY_ASSIGN(const Problem c_problem, read_struct(problem, "problem"));
  WINNOW_TRY_ASSIGN(const Buffers c_buffers, read_struct(buffers, "buffers"));
  WINNOW_TRY(check_enums(c_problem));
  const auto what = problem_of(c_problem);
  const auto where = buffers_of(c_buffers, what);
  WINNOW_TRY(check(what, where));
  WINNOW_TRY_ASSIGN(const DeviceInfo* device, current_device());
  const Verdict verdict = admits(what, *device);
  WINNOW_TRY(status_of(verdict, operation));
  WINNOW_TRY_ASSIGN(const Execution run_on, execution_of(execution, operation, verdict.launch.workspace_bytes));
  return run(what, where, *device, run_on).in(operation);
}

// Operations that every device can do, so that only the rules stand before them.
struct AdmitsAll {
  template <class Problem>
  Verdict operator()(const Problem&, const DeviceInfo&) const {
    return {};
  }
};

}  // namespace
}  // namespace winnow::kernels

using namespace winnow;           // NOLINT(google-build-using-namespace): definitions of extern "C" functions follow
using namespace winnow::kernels;  // NOLINT(google-build-using-namespace)

extern "C" {

uint32_t winnow_abi_version(void) { return WINNOW_ABI_VERSION; }

const char* winnow_version(void) { return kVersion; }

const char* winnow_last_error(void) { return last_error().c_str(); }

winnow_status winnow_init_device(int32_t device, winnow_device_info* info) {
  return guarded([&]() -> Status {
    if (info != nullptr) WINNOW_TRY(read_struct(info, "info").status());
    WINNOW_TRY(initialise(device));
    if (info != nullptr) write_device(*devices().facts[device], *info);
    return {};
  });
}

winnow_status winnow_sparse_mla_admits(const winnow_mla_problem* problem, const winnow_device_info* device,
                                       winnow_verdict* verdict) {
  return guarded([&] { return ask(problem, device, verdict, cuda::admits_mla); });
}

winnow_status winnow_index_select_admits(const winnow_select_problem* problem, const winnow_device_info* device,
                                         winnow_verdict* verdict) {
  return guarded([&] { return ask(problem, device, verdict, cuda::admits_select); });
}

winnow_status winnow_cache_write_admits(const winnow_write_problem* problem, const winnow_device_info* device,
                                        winnow_verdict* verdict) {
  return guarded([&] { return ask(problem, device, verdict, cuda::admits_write); });
}

winnow_status winnow_sparse_mla_workspace(const winnow_mla_problem* problem, int64_t* bytes) {
  return guarded([&]() -> Status {
    WINNOW_TRY(workspace_of(problem, bytes, "sparse_mla", cuda::admits_mla));
    WINNOW_TRY_ASSIGN(const winnow_mla_problem from, read_struct(problem, "problem"));
    WINNOW_TRY_ASSIGN(const DeviceInfo* device, current_device());
    *bytes = std::max(*bytes, most_workspace_below(problem_of(from), *device));
    return {};
  });
}

winnow_status winnow_index_select_workspace(const winnow_select_problem* problem, int64_t* bytes) {
  return guarded([&] { return workspace_of(problem, bytes, "index_select", cuda::admits_select); });
}

winnow_status winnow_sparse_mla(const winnow_mla_problem* problem, const winnow_mla_buffers* buffers,
                                const winnow_execution* execution) {
  return guarded([&] { return launch(problem, buffers, execution, "sparse_mla", cuda::admits_mla, cuda::run_mla); });
}

winnow_status winnow_index_select(const winnow_select_problem* problem, const winnow_select_buffers* buffers,
                                  const winnow_execution* execution) {
  return guarded(
      [&] { return launch(problem, buffers, execution, "index_select", cuda::admits_select, cuda::run_select); });
}

winnow_status winnow_cache_write(const winnow_write_problem* problem, const winnow_write_buffers* buffers,
                                 const winnow_execution* execution) {
  return guarded(
      [&] { return launch(problem, buffers, execution, "cache_write", cuda::admits_write, cuda::run_write); });
}

winnow_status winnow_cache_gather(const winnow_gather_problem* problem, const winnow_gather_buffers* buffers,
                                  const winnow_execution* execution) {
  return guarded([&] { return launch(problem, buffers, execution, "cache_gather", AdmitsAll{}, cuda::run_gather); });
}

winnow_status winnow_merge_partials(const winnow_merge_problem* problem, const winnow_merge_buffers* buffers,
                                    const winnow_execution* execution) {
  return guarded([&] { return launch(problem, buffers, execution, "merge_partials", AdmitsAll{}, cuda::run_merge); });
}

}  // extern "C"
