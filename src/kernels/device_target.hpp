// SPDX-License-Identifier: Apache-2.0
// The CUDA library as a conformance target: images go to the device block by block, guard zones included, run through
// the C ABI, and come back whole, so that the comparison on the host sees every byte that a kernel touched.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/image.hpp"
#include "conformance/target.hpp"
#include "core/status.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/timing.hpp"
#include "kernels/watchdog.hpp"
#include "winnow/winnow.h"

namespace winnow::kernels {

// A copy of an image's blocks on the device. Addresses stay while content is exchanged, as a captured graph wants it.
class DeviceImage {
 public:
  [[nodiscard]] Status mirror(const conformance::Image& image);
  // Content of every block again, from the same image or from one whose blocks are not larger: behind a smaller block
  // the old bytes stay, as they do in a pool that a graph was captured for.
  [[nodiscard]] Status upload(const conformance::Image& image);
  // What the operation may write goes back to the content that begin_run() gave it; inputs stay.
  [[nodiscard]] Status upload_written(const conformance::Image& image);
  [[nodiscard]] Status download(const conformance::Image& image) const;  // whole blocks, guards included
  // Payloads of outputs and caches, one behind the other: what must be equal from launch to launch.
  [[nodiscard]] Status read_written(const conformance::Image& image, std::vector<std::byte>& bytes) const;
  [[nodiscard]] void* moved(const conformance::Image& image, const void* host) const;

 private:
  std::vector<DeviceBuffer> blocks_;
};

struct TargetOptions {
  int launches = 1;     // each from the same start; all must give the same bits
  bool graph = true;    // one more run out of a captured graph, the same bits again
  double limit_s = 20;  // watchdog
};

class DeviceTarget final : public conformance::Target {
 public:
  DeviceTarget(std::string device_name, TargetOptions options, Watchdog& watchdog, cudaStream_t stream)
      : device_name_(std::move(device_name)), options_(options), watchdog_(watchdog), stream_(stream) {}

  [[nodiscard]] std::string name() const override { return "cuda on " + device_name_; }
  void set_case(std::string name) { case_ = std::move(name); }  // what the watchdog says
  void set_options(const TargetOptions& options) { options_ = options; }

  conformance::Outcome run(const SparseMlaProblem&, const SparseMlaBuffers&, conformance::Image&) override;
  conformance::Outcome run(const IndexSelectProblem&, const IndexSelectBuffers&, conformance::Image&) override;
  conformance::Outcome run(const CacheWriteProblem&, const CacheWriteBuffers&, conformance::Image&) override;
  conformance::Outcome run(const RowGatherProblem&, const RowGatherBuffers&, conformance::Image&) override;
  conformance::Outcome run(const MergeProblem&, const MergeBuffers&, conformance::Image&) override;

 private:
  template <class Problem, class Buffers>
  conformance::Outcome run_any(const Problem& problem, const Buffers& buffers, conformance::Image& image);
  template <class CProblem, class CBuffers>
  Status run_launches(const CProblem& problem, const CBuffers& buffers, const winnow_execution& execution,
                      DeviceImage& device, conformance::Image& image);

  std::string device_name_, case_;
  TargetOptions options_;
  Watchdog& watchdog_;
  cudaStream_t stream_;
};

}  // namespace winnow::kernels
