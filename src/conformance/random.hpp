// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine and compiler, which std distributions are not: PCG-XSH-RR 64/32
// (M. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms", 2014).
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace winnow::conformance {

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 1) : increment_(stream << 1 | 1) {
    next();
    state_ += seed;
    next();
  }

  uint32_t next() {
    const uint64_t old = state_;
    state_ = old * 6364136223846793005ULL + increment_;
    return std::rotr(static_cast<uint32_t>(((old >> 18) ^ old) >> 27), static_cast<int>(old >> 59));
  }
  // [0, bound), bound > 0. The bias of the multiplication is below bound / 2^32 and harmless here.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>((static_cast<uint64_t>(next()) * static_cast<uint64_t>(bound)) >> 32);
  }
  float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }  // [0, 1)
  // Close to a unit normal: four uniforms have variance 1/3. Additions only, so no libm decides about the bits, and one
  // after the other, so the compiler's order of evaluation does not either.
  float normal() {
    float sum = uniform();
    for (int i = 1; i < 4; ++i) sum += uniform();
    return (sum - 2.0f) * 1.7320508f;
  }

 private:
  uint64_t state_ = 0;
  uint64_t increment_;
};

// FNV-1a, for seeds from names and for noticing writes.
[[nodiscard]] inline uint64_t hash_bytes(const void* data, std::size_t bytes) {
  uint64_t hash = 14695981039346656037ULL;
  const auto* at = static_cast<const unsigned char*>(data);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(at[i]) << (8 * i);
    hash = (hash ^ word) * 1099511628211ULL;
    hash ^= hash >> 29;
  }
  for (; bytes > 0; --bytes, ++at) hash = (hash ^ *at) * 1099511628211ULL;
  return hash;
}

}  // namespace winnow::conformance
