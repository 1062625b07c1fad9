// SPDX-License-Identifier: Apache-2.0
// Exact top-k of a stream of scores, in bounded memory and in any tiling.
//
// The order is total (index_select.hpp): larger value first, then the lower position; NaN below everything, -0 equals
// +0. A score and its position become one 64-bit key that sorts this way, so ties are no special case and the chosen
// set does not depend on how the stream was cut, nor on how partial results are merged.
//
// RunningTopK keeps a slab of candidates. A score enters when it beats the worst of the best topk seen so far; a full
// slab is cut back to its best topk. Exact for every input, ascending scores included (they only cost more cuts).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace winnow {

// Ascending keys = descending preference. Position in the low half: equal values keep the lower position first.
[[nodiscard]] constexpr uint64_t topk_key(float score, int32_t position) {
  uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 + 0 is +0
  if (score != score) {
    bits = 0;  // below -inf, whose ordered form is 0x007FFFFF
  } else {
    bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  return (static_cast<uint64_t>(~bits) << 32) | static_cast<uint32_t>(position);
}
[[nodiscard]] constexpr int32_t topk_position(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFFu); }

class RunningTopK {
 public:
  // Forgets everything and selects topk >= 1 from here on. Memory is kept between uses.
  void reset(int64_t topk);

  // Scores of positions first, first + 1, ... Positions must be distinct over all calls; their order is free.
  void push(const float* scores, int64_t count, int32_t first);

  // Candidates of another selector (a thread that scored other positions).
  void push(const RunningTopK& other);

  // The positions chosen so far, ascending: min(topk, pushed) of them. Valid until the next call.
  [[nodiscard]] std::span<const int32_t> finish();

 private:
  void cut();
  void append(uint64_t key) {
    if (key > worst_) return;
    slab_[static_cast<std::size_t>(size_++)] = key;
    if (size_ == static_cast<int64_t>(slab_.size())) cut();
  }

  int64_t topk_ = 0;
  int64_t size_ = 0;
  uint64_t worst_ = ~uint64_t{0};  // keys above it cannot be chosen any more
  float threshold_ = 0;            // scores below it cannot either; meaningful when has_threshold_
  bool has_threshold_ = false;
  std::vector<uint64_t> slab_;
  std::vector<uint64_t> order_;  // scratch of a cut
  std::vector<int32_t> chosen_;
};

}  // namespace winnow
