// SPDX-License-Identifier: Apache-2.0
// Why not an OpenMP team: its barrier waits for every thread of the team, and by default spins for milliseconds while
// it does. On a machine that does anything else besides, each of the hundred short regions of a decode step then costs
// a time slice of the scheduler: two threads were seven times slower than one. Here the caller works through the pieces
// itself and waits only for those that a worker has taken.
#include "core/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/checked.hpp"

namespace winnow {
namespace {

using Body = std::function<void(int64_t, int64_t, int)>;
using Clock = std::chrono::steady_clock;

std::atomic<int> team_size{0};
thread_local int current_worker = -1;  // >= 0 inside a parallel_for

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Long enough to bridge the serial stretches of a decode step, short enough not to be noticed in anybody's load.
constexpr std::chrono::microseconds kSpin{100};

// True as soon as ready() is; false after kSpin.
template <class Ready>
bool spin_until(const Ready& ready) {
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return false;
}

// One job at a time. `gate_` holds, in one word, the job's number, whether workers may still enter it, and how many are
// inside: a worker enters by raising the count of an open gate, so it can never meet a job that has ended, and the
// caller leaves when the gate is shut and nobody is inside.
class Team {
 public:
  static Team& instance() {
    static Team team;
    return team;
  }

  ~Team() {
    stopping_ = true;
    gate_.fetch_add(kJob);
    gate_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // False when another thread runs a job: the caller then works alone.
  bool run(int64_t items, int64_t grain, int team, const Body& body) {
    const std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    while (static_cast<int>(workers_.size()) < team - 1) {
      const int index = static_cast<int>(workers_.size()) + 1;
      workers_.emplace_back([this, index] { work(index); });
    }
    body_ = &body;
    items_ = items;
    grain_ = grain;
    team_ = team;
    next_.store(0, std::memory_order_relaxed);
    gate_.fetch_add(kJob | kOpen, std::memory_order_release);
    gate_.notify_all();
    take_pieces(0);
    gate_.fetch_and(~kOpen);
    const auto empty = [this] { return (gate_.load(std::memory_order_acquire) & kInside) == 0; };
    while (!spin_until(empty)) std::this_thread::yield();  // a worker lost its CPU in the middle of a piece
    return true;
  }

 private:
  static constexpr uint64_t kInside = 0xFFFF, kOpen = 0x10000, kJob = 0x20000;

  void take_pieces(int worker) {
    current_worker = worker;
    for (;;) {
      const int64_t begin = next_.fetch_add(1, std::memory_order_relaxed) * grain_;
      if (begin >= items_) break;
      (*body_)(begin, std::min(items_, begin + grain_), worker);
    }
    current_worker = -1;
  }

  void work(int index) {
    uint64_t seen = 0;  // number of the last job that this worker has looked at
    while (!stopping_) {
      uint64_t gate = gate_.load(std::memory_order_acquire);
      if (gate / kJob == seen) {
        const auto news = [&] { return (gate = gate_.load(std::memory_order_acquire)) / kJob != seen; };
        if (!spin_until(news)) gate_.wait(gate);
        continue;
      }
      if ((gate & kOpen) == 0 || index >= team_.load(std::memory_order_relaxed)) {
        seen = gate / kJob;
        continue;
      }
      if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) continue;
      seen = gate / kJob;
      if (index < team_.load(std::memory_order_relaxed)) take_pieces(index);
      gate_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex busy_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> gate_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> team_{0};
  const Body* body_ = nullptr;
  int64_t items_ = 0, grain_ = 1;
};

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

void set_threads(int threads) {
  WINNOW_CHECK(threads >= 0, "threads ", threads);
  team_size = threads == 0 ? available_cpus() : threads;
}

int threads() {
  if (team_size == 0) set_threads(0);
  return team_size;
}

void parallel_for(int64_t items, int64_t grain, const Body& body) {
  WINNOW_DCHECK(grain > 0, "grain ", grain);
  if (items <= 0) return;
  const int team = static_cast<int>(std::min<int64_t>({threads(), ceil_div(items, grain), 4096}));
  if (team == 1 || current_worker >= 0 || !Team::instance().run(items, grain, team, body)) {
    body(0, items, std::max(current_worker, 0));
  }
}

}  // namespace winnow
