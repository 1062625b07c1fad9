// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph_target.hpp"

#include "kernels/abi_calls.hpp"

namespace winnow::kernels {
namespace {

constexpr double kLimitS = 20;

// Every field is 4 or 8 bytes wide and the structs begin zeroed, so their bytes compare.
template <class CProblem>
std::string bytes_of_struct(const CProblem& problem) {
  return std::string(reinterpret_cast<const char*>(&problem), sizeof problem);
}

}  // namespace

template <class Problem, class Buffers>
Status GraphTarget::capture(const Problem& problem, const Buffers& buffers, conformance::Image& image) {
  const auto c = c_problem(problem);
  winnow_execution execution{};
  execution.struct_size = sizeof execution;
  execution.stream = stream_;
  WINNOW_TRY(abi_status(workspace(c, execution.workspace_bytes)));
  WINNOW_TRY_ASSIGN(workspace_, DeviceBuffer::allocate("workspace", execution.workspace_bytes));
  execution.workspace = workspace_.data();
  WINNOW_TRY(device_.mirror(image));
  const auto moved =
      c_buffers(conformance::relocated(buffers, [&](const void* host) { return device_.moved(image, host); }));
  WINNOW_TRY_ASSIGN(
      graph_, Graph::capture(stream_, 1, [&](cudaStream_t, int) { return abi_status(call(c, moved, execution)); }));
  captured_problem_ = bytes_of_struct(c);
  return {};
}

template <class Problem, class Buffers>
conformance::Outcome GraphTarget::run_any(const Problem& problem, const Buffers& buffers, conformance::Image& image) {
  const auto run_it = [&]() -> Status {
    WINNOW_TRY(check(problem, buffers));
    if (!graph_.has_value()) WINNOW_TRY(capture(problem, buffers, image));
    if (bytes_of_struct(c_problem(problem)) != captured_problem_) {
      return error(StatusCode::internal, "a graph was captured for another shape; its cases must agree");
    }
    WINNOW_TRY(device_.upload(image));
    WINNOW_TRY(graph_->replay(stream_));
    WINNOW_TRY(cuda_status(cudaStreamSynchronize(stream_), "graph replay"));
    WINNOW_TRY(device_.download(image));
    return workspace_.guards_intact();
  };
  watchdog_.arm("graph replay", kLimitS);
  const Status status = run_it();
  watchdog_.disarm();
  if (status.ok()) return conformance::ran();
  if (status.code() == StatusCode::unsupported) return conformance::refused(status.message());
  return conformance::failed(status.message());
}

using conformance::Image;
using conformance::Outcome;

Outcome GraphTarget::run(const SparseMlaProblem& p, const SparseMlaBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome GraphTarget::run(const IndexSelectProblem& p, const IndexSelectBuffers& b, Image& i) {
  return run_any(p, b, i);
}
Outcome GraphTarget::run(const CacheWriteProblem& p, const CacheWriteBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome GraphTarget::run(const RowGatherProblem& p, const RowGatherBuffers& b, Image& i) { return run_any(p, b, i); }
Outcome GraphTarget::run(const MergeProblem& p, const MergeBuffers& b, Image& i) { return run_any(p, b, i); }

}  // namespace winnow::kernels
