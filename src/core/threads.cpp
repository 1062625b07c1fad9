// SPDX-License-Identifier: Apache-2.0
#include "core/threads.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "core/check.hpp"
#include "core/checked.hpp"

namespace winnow {
namespace {
std::atomic<int> team_size{0};
}

void set_threads(int threads) {
  WINNOW_CHECK(threads >= 0, "threads ", threads);
  team_size = threads == 0 ? omp_get_num_procs() : threads;
}

int threads() {
  if (team_size == 0) set_threads(0);
  return team_size;
}

void parallel_for(int64_t items, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) {
  WINNOW_DCHECK(grain > 0, "grain ", grain);
  if (items <= 0) return;
  const int64_t chunks = ceil_div(items, grain);
  if (chunks == 1 || threads() == 1 || omp_in_parallel()) {
    body(0, items, omp_in_parallel() ? omp_get_thread_num() : 0);
    return;
  }
  const int team = static_cast<int>(std::min<int64_t>(threads(), chunks));
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    body(chunk * grain, std::min(items, (chunk + 1) * grain), omp_get_thread_num());
  }
}

}  // namespace winnow
