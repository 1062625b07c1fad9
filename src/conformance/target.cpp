// SPDX-License-Identifier: Apache-2.0
#include "conformance/target.hpp"

#include <vector>

#include "contract/refused.hpp"

namespace winnow::conformance {
namespace {
template <class Problem, class Buffers, class Admits, class Run>
Outcome run_on_host(const Backend& backend, const DeviceInfo& device, const Problem& problem, const Buffers& buffers,
                    Admits admits, Run run) {
  if (run == nullptr) return refused("the operation is not offered");
  const Verdict verdict = admits(backend, problem, device);
  if (!verdict.admitted()) return refused(reasons_of(verdict));
  std::vector<std::byte> workspace(static_cast<std::size_t>(verdict.launch.workspace_bytes));
  const Execution execution{nullptr, workspace.data(), verdict.launch.workspace_bytes};
  const Status status = run(backend, problem, buffers, device, execution);
  return status.ok() ? ran() : failed(status.message());
}
}  // namespace

Outcome HostBackend::run(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, Image&) {
  return run_on_host(backend_, device_, problem, buffers, backend_.admits_mla, backend_.run_mla);
}
Outcome HostBackend::run(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers, Image&) {
  return run_on_host(backend_, device_, problem, buffers, backend_.admits_select, backend_.run_select);
}
Outcome HostBackend::run(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers, Image&) {
  return run_on_host(backend_, device_, problem, buffers, backend_.admits_write, backend_.run_write);
}

}  // namespace winnow::conformance
