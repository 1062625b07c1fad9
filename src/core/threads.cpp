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
thread_local int current_worker = -1;  // >= 0 inside a parallel_for

}  // namespace

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
  const int64_t pieces = ceil_div(items, grain);
  const int team = static_cast<int>(std::min<int64_t>(threads(), pieces));
  if (team == 1 || current_worker >= 0) {
    body(0, items, std::max(current_worker, 0));
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    current_worker = omp_get_thread_num();
    body(piece * grain, std::min(items, (piece + 1) * grain), current_worker);
    current_worker = -1;
  }
}

}  // namespace winnow
