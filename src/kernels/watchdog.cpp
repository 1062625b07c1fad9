// SPDX-License-Identifier: Apache-2.0
#include "kernels/watchdog.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace winnow::kernels {

Watchdog::Watchdog() : thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::arm(std::string what, double limit_s) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  started_ = Clock::now();
  deadline_ = started_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  armed_ = true;
  changed_.notify_all();
}

void Watchdog::disarm() {
  const std::lock_guard lock(mutex_);
  armed_ = false;
  const double took_s = std::chrono::duration<double>(Clock::now() - started_).count();
  if (took_s > longest_s_) {
    longest_s_ = took_s;
    longest_ = what_;
  }
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!armed_) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_until(lock, deadline_);
    if (!armed_ || stop_ || Clock::now() < deadline_) continue;
    const double limit_s = std::chrono::duration<double>(deadline_ - started_).count();
    std::fprintf(stderr, "HANG: no answer after %.1f s: %s\n", limit_s, what_.c_str());
    std::fprintf(stdout, "HANG: no answer after %.1f s: %s\n", limit_s, what_.c_str());
    std::fflush(nullptr);
    std::_Exit(kExitHang);  // destructors would wait for the device
  }
}

}  // namespace winnow::kernels
