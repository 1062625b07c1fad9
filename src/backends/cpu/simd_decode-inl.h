// SPDX-License-Identifier: Apache-2.0
// Decoding of cached elements to float, for every Highway target. Included once per target, inside foreach_target.
#if defined(WINNOW_SIMD_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_SIMD_DECODE_INL_H_
#undef WINNOW_SIMD_DECODE_INL_H_
#else
#define WINNOW_SIMD_DECODE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "core/dtype.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::Repartition<uint32_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using Vec = hn::Vec<F32>;

HWY_INLINE Vec LoadBf16(F32 df, const uint16_t* at) {
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), at))));
}

// Sign to bit 31, the other seven bits to 26...20: the value times 2^-120, exactly, subnormals included (they need
// denormals, which we never switch off). The NaN code 0x7F would become 480: it is put back.
HWY_INLINE Vec LoadE4m3(F32 df, const uint8_t* at) {
  const U32 du;
  const auto code = hn::PromoteTo(du, hn::LoadU(U8(), at));
  const auto magnitude = hn::And(code, hn::Set(du, 0x7F));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(code, magnitude));
  const auto bits = hn::Or(sign, hn::ShiftLeft<20>(magnitude));
  const auto value = hn::Mul(hn::BitCast(df, bits), hn::Set(df, 0x1p120f));
  const auto nan = hn::Eq(magnitude, hn::Set(du, 0x7F));
  return hn::IfThenElse(hn::RebindMask(df, nan), hn::BitCast(df, hn::Set(du, 0x7FC00000u)), value);
}

// `count` elements of a type to floats; the last vector may be partial.
HWY_INLINE void DecodeFloats(const std::byte* from, DType type, int64_t count, float* out) {
  const F32 df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t d = 0;
  if (type == DType::bf16) {
    const auto* at = reinterpret_cast<const uint16_t*>(from);
    for (; d + lanes <= count; d += lanes) hn::StoreU(LoadBf16(df, at + d), df, out + d);
    for (; d < count; ++d) out[d] = to_float(bf16{at[d]});
  } else if (type == DType::e4m3) {
    const auto* at = reinterpret_cast<const uint8_t*>(from);
    for (; d + lanes <= count; d += lanes) hn::StoreU(LoadE4m3(df, at + d), df, out + d);
    for (; d < count; ++d) out[d] = to_float(e4m3{at[d]});
  } else {
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace winnow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
