// SPDX-License-Identifier: Apache-2.0
#include "indexer/topk.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace winnow {
namespace {
// Room beyond topk before a cut: the larger, the fewer cuts; 8 bytes each.
constexpr int64_t kSlack = 1024;

float score_of(uint64_t key) {
  const uint32_t bits = ~static_cast<uint32_t>(key >> 32);
  if (bits == 0) return -std::numeric_limits<float>::infinity();  // NaN: no score is below it
  return std::bit_cast<float>((bits & 0x80000000u) != 0 ? bits & 0x7FFFFFFFu : ~bits);
}
}  // namespace

void RunningTopK::reset(int64_t topk) {
  topk_ = topk;
  size_ = 0;
  worst_ = ~uint64_t{0};
  has_threshold_ = false;
  slab_.resize(static_cast<std::size_t>(topk + std::max(topk, kSlack)));
}

void RunningTopK::push(const float* scores, int64_t count, int32_t first) {
  for (int64_t i = 0; i < count; ++i) {
    if (has_threshold_ && scores[i] < threshold_) continue;  // the common case once the slab was cut
    append(topk_key(scores[i], first + static_cast<int32_t>(i)));
  }
}

void RunningTopK::push(const RunningTopK& other) {
  for (int64_t i = 0; i < other.size_; ++i) append(other.slab_[static_cast<std::size_t>(i)]);
}

void RunningTopK::cut() {
  if (size_ <= topk_) return;
  // The copy is partitioned and the slab only filtered, so candidates stay in the order of their arrival and finish()
  // of an ascending stream has nothing to sort.
  order_.assign(slab_.begin(), slab_.begin() + size_);
  std::nth_element(order_.begin(), order_.begin() + (topk_ - 1), order_.end());
  worst_ = order_[static_cast<std::size_t>(topk_ - 1)];
  const auto beaten = [this](uint64_t key) { return key > worst_; };
  size_ = std::remove_if(slab_.begin(), slab_.begin() + size_, beaten) - slab_.begin();
  threshold_ = score_of(worst_);
  has_threshold_ = true;
}

std::span<const int32_t> RunningTopK::finish() {
  cut();
  chosen_.resize(static_cast<std::size_t>(size_));
  std::transform(slab_.begin(), slab_.begin() + size_, chosen_.begin(), topk_position);
  if (!std::is_sorted(chosen_.begin(), chosen_.end())) std::sort(chosen_.begin(), chosen_.end());
  return chosen_;
}

}  // namespace winnow
