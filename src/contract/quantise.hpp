// SPDX-License-Identifier: Apache-2.0
// How a cache writer quantises, to the bit: every backend's bytes equal these.
//
//   amax   largest finite magnitude of the group; NaN is ignored, infinity counts as the largest float
//   scale  latent rows, per 128 latents:  plain  max(amax / 448, smallest normal float)
//                                         power_of_two  max(amax / 448, 1e-4) rounded up to a power of two
//          index keys, per key:           plain  max(amax, 1e-4) / 448;  power_of_two: the same rounded up
//   value  to_e4m3(x / scale): IEEE division in float, then nearest even, saturating at 448; NaN stays NaN
// The floors keep groups of zeros finite; they are those of FlashMLA's reference quantiser (latent) and of DeepGEMM's
// (keys). The last group is short when d_nope is not a multiple of 128.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "contract/row_format.hpp"
#include "core/dtype.hpp"

namespace winnow {

enum class QuantisedGroup : int32_t { latent = 0, key = 1 };

inline constexpr float kLargestE4m3 = 448.0f;

// x positive and normal; a power of two stays itself.
[[nodiscard]] constexpr float round_up_to_power_of_two(float x) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x007FFFFFu) & 0x7F800000u);
}

[[nodiscard]] constexpr float widen_amax(float amax, float x) {
  const float magnitude = x < 0 ? -x : x;
  if (!(magnitude > amax)) return amax;  // NaN compares false
  return magnitude <= std::numeric_limits<float>::max() ? magnitude : std::numeric_limits<float>::max();
}

[[nodiscard]] constexpr float group_scale(float amax, ScaleMode mode, QuantisedGroup group) {
  if (group == QuantisedGroup::key) {
    const float scale = (amax > 1e-4f ? amax : 1e-4f) / kLargestE4m3;
    return mode == ScaleMode::power_of_two ? round_up_to_power_of_two(scale) : scale;
  }
  const float scale = amax / kLargestE4m3;
  if (mode == ScaleMode::power_of_two) return round_up_to_power_of_two(scale > 1e-4f ? scale : 1e-4f);
  return scale > std::numeric_limits<float>::min() ? scale : std::numeric_limits<float>::min();
}

static_assert(round_up_to_power_of_two(1.0f) == 1.0f && round_up_to_power_of_two(1.0000001f) == 2.0f);
static_assert(group_scale(448.0f, ScaleMode::power_of_two, QuantisedGroup::latent) == 1.0f);

}  // namespace winnow
