// SPDX-License-Identifier: Apache-2.0
// A target that captures a CUDA graph for the first case it is given and replays it for the following ones, which must
// have the same shape: lists, lengths, lookups and rows change, addresses and launches stay.
#pragma once

#include <optional>
#include <string>

#include "kernels/device_target.hpp"

namespace winnow::kernels {

class GraphTarget final : public conformance::Target {
 public:
  GraphTarget(Watchdog& watchdog, cudaStream_t stream) : watchdog_(watchdog), stream_(stream) {}

  [[nodiscard]] std::string name() const override { return "cuda, one captured graph"; }
  conformance::Outcome run(const SparseMlaProblem&, const SparseMlaBuffers&, conformance::Image&) override;
  conformance::Outcome run(const IndexSelectProblem&, const IndexSelectBuffers&, conformance::Image&) override;
  conformance::Outcome run(const CacheWriteProblem&, const CacheWriteBuffers&, conformance::Image&) override;
  conformance::Outcome run(const RowGatherProblem&, const RowGatherBuffers&, conformance::Image&) override;
  conformance::Outcome run(const MergeProblem&, const MergeBuffers&, conformance::Image&) override;

 private:
  template <class Problem, class Buffers>
  Status capture(const Problem& problem, const Buffers& buffers, conformance::Image& image);
  template <class Problem, class Buffers>
  conformance::Outcome run_any(const Problem& problem, const Buffers& buffers, conformance::Image& image);

  Watchdog& watchdog_;
  cudaStream_t stream_;
  DeviceImage device_;
  DeviceBuffer workspace_;
  std::optional<Graph> graph_;
  std::string captured_problem_;  // bytes of the C struct, to refuse another shape
};

}  // namespace winnow::kernels
