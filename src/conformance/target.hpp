// SPDX-License-Identifier: Apache-2.0
// Target: what conformance runs a case on. A CPU backend works on the host image in place; a device target copies
// image.blocks() to the device and back (see image.hpp).
#pragma once

#include <string>

#include "conformance/image.hpp"
#include "contract/backend.hpp"

namespace winnow::conformance {

struct Outcome {
  enum class Kind { ran, refused, failed };
  Kind kind = Kind::ran;
  std::string text;  // reasons of a refusal, message of a failure
};
[[nodiscard]] inline Outcome ran() { return {}; }
[[nodiscard]] inline Outcome refused(std::string why) { return {Outcome::Kind::refused, std::move(why)}; }
[[nodiscard]] inline Outcome failed(std::string why) { return {Outcome::Kind::failed, std::move(why)}; }

class Target {
 public:
  virtual ~Target() = default;
  [[nodiscard]] virtual std::string name() const = 0;

  // `buffers` point into `image` on the host. When Outcome::ran comes back, the image holds the results.
  virtual Outcome run(const SparseMlaProblem&, const SparseMlaBuffers&, Image&) { return absent(); }
  virtual Outcome run(const IndexSelectProblem&, const IndexSelectBuffers&, Image&) { return absent(); }
  virtual Outcome run(const CacheWriteProblem&, const CacheWriteBuffers&, Image&) { return absent(); }
  virtual Outcome run(const RowGatherProblem&, const RowGatherBuffers&, Image&) { return absent(); }
  virtual Outcome run(const MergeProblem&, const MergeBuffers&, Image&) { return absent(); }

  // Error of one index score as a share of the sum of its |terms|. Selections may differ from the oracle's only where
  // a score is closer to the border than this. fp32 accumulation of 64 x 128 terms stays below 2^-18; tensor cores that
  // keep fewer bits say so here.
  [[nodiscard]] virtual double index_score_error() const { return 0x1p-18; }

 private:
  static Outcome absent() { return refused("the operation is not offered"); }
};

// A backend of this process that works on host memory.
class HostBackend final : public Target {
 public:
  HostBackend(const Backend& backend, DeviceInfo device) : backend_(backend), device_(std::move(device)) {}
  [[nodiscard]] std::string name() const override { return backend_.name; }
  Outcome run(const SparseMlaProblem& problem, const SparseMlaBuffers& buffers, Image& image) override;
  Outcome run(const IndexSelectProblem& problem, const IndexSelectBuffers& buffers, Image& image) override;
  Outcome run(const CacheWriteProblem& problem, const CacheWriteBuffers& buffers, Image& image) override;

 private:
  const Backend& backend_;
  DeviceInfo device_;
};

}  // namespace winnow::conformance
