// SPDX-License-Identifier: Apache-2.0
// Mistakes on purpose: each runs a case on the real kernels with one thing wrong and expects the comparison to say so.
// A comparison that these cannot upset would prove nothing when it passes.
#pragma once

#include <string>
#include <vector>

#include "kernels/device_target.hpp"

namespace winnow::kernels {

struct MutationResult {
  std::string name;
  std::string text;      // what the comparison said, or why the mutation could not run
  bool noticed = false;  // false: the comparison passed, or did not run
};

[[nodiscard]] std::vector<MutationResult> run_mutations(DeviceTarget& target);

}  // namespace winnow::kernels
