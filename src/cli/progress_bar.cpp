// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.hpp"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <string>

#include "cli/output.hpp"
#include "core/concat.hpp"
#include "core/progress.hpp"

namespace winnow::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatienceSeconds = 2.0;
constexpr double kRedrawSeconds = 0.1;
constexpr int kBarWidth = 30;

struct Bar {
  std::string what;
  Clock::time_point start, drawn;
  bool visible = false;
};

Bar& bar() {
  static Bar instance;
  return instance;
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void write_raw(const std::string& text) {
  // A bar that cannot be drawn is not worth an error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string picture(const Bar& b, int64_t done, int64_t total, std::string_view unit, double elapsed) {
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const int filled = static_cast<int>(share * kBarWidth);
  const int64_t left = done > 0 ? std::llround(elapsed / share - elapsed) : 0;
  return concat("\r\x1b[K", b.what, " [", std::string(static_cast<std::size_t>(filled), '#'),
                std::string(static_cast<std::size_t>(kBarWidth - filled), '.'), "] ", done, "/", total, " ", unit,
                done > 0 ? concat(", ", left, " s left") : "");
}

void draw(std::string_view what, int64_t done, int64_t total, std::string_view unit) {
  Bar& b = bar();
  if (b.what != what || done == 0) {
    clear_progress_bar();
    b = {std::string(what), Clock::now(), {}, false};
  }
  if (total <= 0 || done >= total) return clear_progress_bar();
  const double elapsed = since(b.start);
  const double expected = done > 0 ? elapsed * static_cast<double>(total) / static_cast<double>(done) : elapsed;
  if (!b.visible && elapsed < kPatienceSeconds && (elapsed < kRedrawSeconds || expected < kPatienceSeconds)) return;
  if (b.visible && since(b.drawn) < kRedrawSeconds) return;
  b.visible = true;
  b.drawn = Clock::now();
  write_raw(picture(b, done, total, unit, elapsed));
}

}  // namespace

void install_progress_bar() {
  if (stderr_is_terminal()) set_progress_sink(draw);
}

void clear_progress_bar() {
  Bar& b = bar();
  if (!b.visible) return;
  b.visible = false;
  write_raw("\r\x1b[K");
}

}  // namespace winnow::cli
