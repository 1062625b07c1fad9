// SPDX-License-Identifier: Apache-2.0
// Host watchdog: a launch that does not come back within its limit is named before the process ends.
//
// A kernel that hangs cannot be stopped from the host, so the watchdog prints what was running and ends the process
// with kExitHang. One Watchdog per process; arm and disarm from one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace winnow::kernels {

inline constexpr int kExitHang = 3;

class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // `what` names operation, shape and seed: enough to run it again.
  void arm(std::string what, double limit_s);
  void disarm();
  // The longest time between arm and disarm so far, and what it was.
  [[nodiscard]] double longest_s() const { return longest_s_; }
  [[nodiscard]] const std::string& longest() const { return longest_; }

 private:
  using Clock = std::chrono::steady_clock;
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false, stop_ = false;
  std::string what_;
  Clock::time_point started_, deadline_;
  double longest_s_ = 0;
  std::string longest_;
  std::thread thread_;  // last: starts when everything above is there
};

}  // namespace winnow::kernels
