// SPDX-License-Identifier: Apache-2.0
// Thread use. One OpenMP team serves the whole process; work is divided by output, never by summands, so a result does
// not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>

namespace winnow {

// Threads of the team; 0 asks for one per available CPU (the affinity mask counts, hyper-threads too).
void set_threads(int threads);
[[nodiscard]] int threads();

// Calls body(begin, end, worker) on disjoint ranges that cover [0, items), each of about `grain` items, handed out
// dynamically. worker is in [0, threads()) and nobody else's within this call. Runs inline when items <= grain or
// inside another parallel_for.
void parallel_for(int64_t items, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end, int worker)>& body);

}  // namespace winnow
