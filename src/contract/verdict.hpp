// SPDX-License-Identifier: Apache-2.0
// Verdict: the answer of a backend's predicate. Admitted with launch facts, or refused with every reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/concat.hpp"

namespace winnow {

struct Refusal {
  std::string what, wanted, found;  // "q_heads", "1 to 128", "200"
};

// What the launch will use: the same numbers that the launcher reads, so that a plan cannot lie.
struct LaunchFacts {
  int32_t heads_per_block = 0;  // query heads of one CTA, padding included
  int32_t rows_per_tile = 0;    // cache rows in one step
  int32_t stages = 0;           // tiles in flight
  int32_t splits = 1;           // shares of one token's slots
  int64_t shared_bytes = 0;     // shared memory of one CTA
  int64_t workspace_bytes = 0;  // scratch that the caller provides
  std::string note;             // "portable mma.sync, 2 CTAs per SM"
};

struct Verdict {
  std::vector<Refusal> refusals;
  LaunchFacts launch;  // meaningful when admitted

  [[nodiscard]] bool admitted() const { return refusals.empty(); }

  template <class Wanted, class Found>
  void need(bool holds, std::string_view what, const Wanted& wanted, const Found& found) {
    if (!holds) refusals.push_back({std::string(what), concat(wanted), concat(found)});
  }
};

}  // namespace winnow
