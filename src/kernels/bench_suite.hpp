// SPDX-License-Identifier: Apache-2.0
// The fixed list of `bench --suite peers`: shapes for which others' times on one H200 are known, and our targets.
#pragma once

#include <vector>

#include "kernels/bench_case.hpp"

namespace winnow::kernels {

[[nodiscard]] std::vector<BenchCase> peers_suite();

}  // namespace winnow::kernels
