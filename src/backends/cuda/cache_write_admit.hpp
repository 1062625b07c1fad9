// SPDX-License-Identifier: Apache-2.0
// Admission of the CUDA cache writer, and the shapes of its launch and of the merge. No CUDA header.
#pragma once

#include <cstdint>

#include "contract/cache_write.hpp"
#include "contract/device_info.hpp"
#include "contract/verdict.hpp"

namespace winnow::cuda {

struct WriteShape {
  static constexpr int kThreads = 256;  // one CTA per token
  // Tokens of one launch. A CTA looks for a later token with its slot among them, so that of two tokens with one slot
  // the later is stored whole; launches on one stream keep that order among themselves.
  static constexpr int kTokensPerLaunch = 2048;
};

struct MergeShape {
  static constexpr int kWarps = 8;  // of a CTA of merge_parts; one for each token and head
};

[[nodiscard]] Verdict admits_write(const CacheWriteProblem& problem, const DeviceInfo& device);

}  // namespace winnow::cuda
