// SPDX-License-Identifier: Apache-2.0
// Which sparse MLA problems the CUDA kernels take on a device, and with which launch. Host only, no CUDA header: the
// same function answers `winnow plan` for a described GPU and sizes the launch on a real one.
#pragma once

#include "backends/cuda/mla_tiles.hpp"
#include "contract/device_info.hpp"
#include "contract/sparse_mla.hpp"
#include "contract/verdict.hpp"

namespace winnow::cuda {

// Everything that a launch needs and that shapes alone decide.
struct MlaPlan {
  const MlaTile* tile = nullptr;  // null: refused
  int32_t head_blocks = 0;        // CTAs side by side for the heads of one token
  int32_t splits = 1;             // CTAs side by side for the slots of one token
  int64_t shared_bytes = 0;
  int64_t partial_bytes = 0;    // of unnormalised output; 0 when splits is 1
  int64_t workspace_bytes = 0;  // partial_bytes and the statistics behind it
};

[[nodiscard]] MlaPlan plan_mla(const SparseMlaProblem& problem, const DeviceInfo& device);

[[nodiscard]] Verdict admits_mla(const SparseMlaProblem& problem, const DeviceInfo& device);

}  // namespace winnow::cuda
