// SPDX-License-Identifier: Apache-2.0
#include "fma_peak.hpp"

#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/fma_peak.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve accumulators cover 4 cycles of latency times 2 units and still fit the 16 registers of AVX2.
double fma_peak(int64_t rounds) {
  const hn::ScalableTag<float> d;
  constexpr int kSums = 12;
  hn::Vec<decltype(d)> sum[kSums];
  for (auto& s : sum) s = hn::Set(d, 1e-3f);
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 1e-3f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = hn::MulAdd(s, a, b);
  }
  auto all = sum[0];
  for (int i = 1; i < kSums; ++i) all = hn::Add(all, sum[i]);
  volatile float keep = hn::GetLane(all);
  (void)keep;
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace winnow::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow {
HWY_EXPORT(fma_peak);
double run_fma_peak(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(fma_peak)(rounds); }
}  // namespace winnow
#endif
