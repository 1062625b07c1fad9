// SPDX-License-Identifier: Apache-2.0
#include "kernels/timing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/cuda_status.hpp"

namespace winnow::kernels {
namespace {

class Events {
 public:
  ~Events() {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  Status create() {
    for (cudaEvent_t& event : events_) WINNOW_CUDA_TRY(cudaEventCreate(&event));
    return {};
  }
  cudaEvent_t begin() const { return events_[0]; }
  cudaEvent_t end() const { return events_[1]; }

 private:
  std::array<cudaEvent_t, 2> events_{};
};

Status capture_launches(cudaStream_t stream, int launches, const Launch& launch, cudaGraph_t& graph) {
  WINNOW_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Status launched;
  for (int i = 0; i < launches && launched.ok(); ++i) launched = launch(stream, i);
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);  // ends the capture after a failed launch as well
  WINNOW_TRY(std::move(launched));
  return cuda_status(ended, "cudaStreamEndCapture");
}

Timing summarise(std::vector<double>& us) {
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us[us.size() * 9 / 10], static_cast<int>(us.size())};
}

}  // namespace

Result<Graph> Graph::capture(cudaStream_t stream, int launches, const Launch& launch) {
  cudaGraph_t graph = nullptr;
  Status captured = capture_launches(stream, launches, launch, graph);
  Graph result;
  if (captured.ok()) captured = cuda_status(cudaGraphInstantiate(&result.exec_, graph, 0), "cudaGraphInstantiate");
  if (graph != nullptr) cudaGraphDestroy(graph);
  WINNOW_TRY(std::move(captured));
  return result;
}

Status Graph::replay(cudaStream_t stream) const {
  return cuda_status(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
}

Result<Timing> time_graph(cudaStream_t stream, const TimingPlan& plan, const Launch& launch) {
  WINNOW_TRY_ASSIGN(const Graph graph, Graph::capture(stream, plan.launches, launch));
  Events events;
  WINNOW_TRY(events.create());
  for (int i = 0; i < plan.warm_ups; ++i) WINNOW_TRY(graph.replay(stream));
  WINNOW_CUDA_TRY(cudaStreamSynchronize(stream));
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> us;
  while (static_cast<int>(us.size()) < plan.repeats) {
    WINNOW_CUDA_TRY(cudaEventRecord(events.begin(), stream));
    WINNOW_TRY(graph.replay(stream));
    WINNOW_CUDA_TRY(cudaEventRecord(events.end(), stream));
    WINNOW_CUDA_TRY(cudaEventSynchronize(events.end()));
    float ms = 0;
    WINNOW_CUDA_TRY(cudaEventElapsedTime(&ms, events.begin(), events.end()));
    us.push_back(1e3 * ms / plan.launches);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (us.size() >= 5 && spent.count() > plan.limit_s) break;
  }
  return summarise(us);
}

}  // namespace winnow::kernels
