// SPDX-License-Identifier: Apache-2.0
// Bytes of one cached token: the latent row that attention reads and the key that the indexer reads.
//
// Latent row, d_nope latent elements then d_rope rotated elements (d_rope may be 0):
//   format   latent              scales                       rope            bytes at 512 + 64   at 512 + 0
//   f32      f32 at 0            -                            f32             2304                2048
//   bf16     bf16 at 0           -                            bf16            1152                1024
//   v32_fp8  e4m3 at 0           fp32, one per 128 latents,   bf16 behind      656                 528
//                                at d_nope                    the scales
//   v32_fp8: latent[i] = e4m3[i] * scale[i / 128]. Scales are arbitrary fp32; never assume powers of two.
//   Worked row, 512 + 64: bytes 0-511 e4m3, 512-527 four fp32 scales, 528-655 sixty-four bf16.
//
// Index key, d elements: f32 and bf16 are [page_size][d] per page. fp8 is planar inside a page, as DeepGEMM and vLLM
// lay it out: page_size * d e4m3 bytes (token-major), then page_size fp32 scales. 132 bytes a token at d = 128.
#pragma once

#include <cstdint>

#include "core/checked.hpp"
#include "core/dtype.hpp"

namespace winnow {

// Values are part of the C ABI: never renumber.
enum class RowFormat : int32_t { f32 = 0, bf16 = 1, v32_fp8 = 2 };
enum class KeyFormat : int32_t { f32 = 0, bf16 = 1, fp8 = 2 };

[[nodiscard]] const char* name_of(RowFormat format);
[[nodiscard]] const char* name_of(KeyFormat format);

inline constexpr int kLatentsPerScale = 128;

// Byte offsets inside one latent row.
struct RowLayout {
  int64_t scales;  // first fp32 scale; equals rope when the format has none
  int64_t rope;    // first rope element
  int64_t bytes;   // whole row
};

[[nodiscard]] constexpr RowLayout row_layout(RowFormat format, int64_t d_nope, int64_t d_rope) {
  switch (format) {
    case RowFormat::f32: return {d_nope * 4, d_nope * 4, (d_nope + d_rope) * 4};
    case RowFormat::bf16: return {d_nope * 2, d_nope * 2, (d_nope + d_rope) * 2};
    case RowFormat::v32_fp8: {
      const int64_t rope = d_nope + ceil_div(d_nope, kLatentsPerScale) * 4;
      return {d_nope, rope, rope + d_rope * 2};
    }
  }
  return {0, 0, 0};
}
[[nodiscard]] constexpr int64_t row_bytes(RowFormat format, int64_t d_nope, int64_t d_rope) {
  return row_layout(format, d_nope, d_rope).bytes;
}

// Bytes of the index keys of one page.
[[nodiscard]] constexpr int64_t key_page_bytes(KeyFormat format, int64_t page_size, int64_t index_dim) {
  switch (format) {
    case KeyFormat::f32: return page_size * index_dim * 4;
    case KeyFormat::bf16: return page_size * index_dim * 2;
    case KeyFormat::fp8: return page_size * (index_dim + 4);
  }
  return 0;
}

static_assert(row_bytes(RowFormat::bf16, 512, 64) == 1152);
static_assert(row_bytes(RowFormat::v32_fp8, 512, 64) == 656);
static_assert(row_bytes(RowFormat::v32_fp8, 512, 0) == 528);
static_assert(key_page_bytes(KeyFormat::fp8, 64, 128) == 64 * 132);

// How a writer chooses the scale of a quantised group.
enum class ScaleMode : int32_t {
  plain = 0,         // amax / 448
  power_of_two = 1,  // the same rounded up to a power of two: what every reader decodes, E8M0 readers included
};

}  // namespace winnow
