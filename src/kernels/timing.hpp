// SPDX-License-Identifier: Apache-2.0
// Time of a launch on the device: a CUDA graph of `launches` copies replayed `repeats` times between two events.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "core/status.hpp"

namespace winnow::kernels {

struct TimingPlan {
  int launches = 20;    // in one graph
  int repeats = 100;    // graph replays that are timed; the median counts
  int warm_ups = 3;     // replays before them
  double limit_s = 20;  // stop repeating after this long, with at least five replays done
};

struct Timing {
  double median_us = 0, min_us = 0, p90_us = 0;  // of one launch
  int repeats = 0;
};

// `launch(i)` enqueues the work on the stream; i counts the launches of one graph, so that it may rotate its inputs.
using Launch = std::function<Status(cudaStream_t stream, int i)>;

[[nodiscard]] Result<Timing> time_graph(cudaStream_t stream, const TimingPlan& plan, const Launch& launch);

// An executable graph that is destroyed with its owner.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept { std::swap(exec_, other.exec_); }
  Graph& operator=(Graph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  [[nodiscard]] static Result<Graph> capture(cudaStream_t stream, int launches, const Launch& launch);
  [[nodiscard]] Status replay(cudaStream_t stream) const;

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace winnow::kernels
