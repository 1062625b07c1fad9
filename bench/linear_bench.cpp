// SPDX-License-Identifier: Apache-2.0
// Products of stored weights with activations: decode (1 token, bound by reading weights) and prefill (bound by
// float32 FMA). Shapes: 2048 x 2048, and those of the demonstration model. Counters: bytes of weights per second, FLOP
// per second, and the latter as a share of the FMA rate that this program measures on the same threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/threads.hpp"
#include "fma_peak.hpp"
#include "ops/cpu/kernels.hpp"
#include "ops/cpu/products.hpp"

namespace winnow {
namespace {

struct Weights {
  std::vector<std::byte> bytes;
  Matrix matrix;
  Weights(StorageType type, int64_t out, int64_t in) {
    const StorageTraits& traits = *traits_of(type);
    matrix = {.type = type, .out = out, .in = in, .row_bytes = in / traits.block_elements * traits.block_bytes};
    // Bytes of 0x11 are small finite numbers in every type here; values do not change the time.
    bytes.assign(static_cast<std::size_t>(matrix.bytes()), std::byte{0x11});
    matrix.data = bytes.data();
  }
};

void fma_peak(benchmark::State& state) {
  const int team = static_cast<int>(state.range(0));
  set_threads(team);
  double flops = 0;
  for (auto _ : state) {
    std::vector<double> done(static_cast<std::size_t>(team));
    parallel_for(team, 1, [&](int64_t begin, int64_t, int) { done[begin] = run_fma_peak(1 << 20); });
    for (double d : done) flops += d;
  }
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}
BENCHMARK(fma_peak)->Arg(1)->Arg(2)->UseRealTime();

double peak_of(int team) {
  static double peaks[65] = {};
  if (peaks[team] > 0) return peaks[team];
  set_threads(team);
  for (int trial = 0; trial < 5; ++trial) {
    const auto begin = std::chrono::steady_clock::now();
    parallel_for(team, 1, [](int64_t, int64_t, int) { run_fma_peak(1 << 20); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    peaks[team] = std::max(peaks[team], run_fma_peak(1) * (1 << 20) * team / seconds.count());
  }
  return peaks[team];
}

void linear(benchmark::State& state, StorageType type, int64_t out, int64_t in, int64_t tokens) {
  const int team = static_cast<int>(state.range(0));
  const double peak = peak_of(team);
  set_threads(team);
  const Weights w(type, out, in);
  std::vector<float> x(static_cast<std::size_t>(tokens * in), 0.5f), y(static_cast<std::size_t>(tokens * out));
  std::vector<const float*> x_rows;
  std::vector<float*> y_rows;
  for (int64_t t = 0; t < tokens; ++t) {
    x_rows.push_back(x.data() + t * in);
    y_rows.push_back(y.data() + t * out);
  }
  const cpu::Product product{w.matrix, x_rows.data(), y_rows.data(), tokens};
  cpu::WorkerScratch scratch;
  for (auto _ : state) {
    cpu::run_products({&product, 1}, scratch);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const auto rounds = static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(tokens * out * in);
  state.SetBytesProcessed(static_cast<int64_t>(rounds) * w.matrix.bytes());
  state.counters["FLOP/s"] = benchmark::Counter(flops * rounds, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(flops * rounds / peak, benchmark::Counter::kIsRate);
  state.SetLabel(cpu::simd_target());
}

#define WINNOW_LINEAR(type, out, in, tokens)                                                           \
  BENCHMARK_CAPTURE(linear, type##_##out##x##in##_tokens_##tokens, StorageType::type, out, in, tokens) \
      ->Arg(1)                                                                                         \
      ->Arg(2)                                                                                         \
      ->UseRealTime()

WINNOW_LINEAR(F32, 2048, 2048, 1);
WINNOW_LINEAR(F16, 2048, 2048, 1);
WINNOW_LINEAR(BF16, 2048, 2048, 1);
WINNOW_LINEAR(Q8_0, 2048, 2048, 1);
WINNOW_LINEAR(Q4_K, 2048, 2048, 1);
WINNOW_LINEAR(Q6_K, 2048, 2048, 1);
WINNOW_LINEAR(F32, 2048, 2048, 512);
WINNOW_LINEAR(BF16, 2048, 2048, 512);
WINNOW_LINEAR(Q8_0, 2048, 2048, 512);
WINNOW_LINEAR(Q4_K, 2048, 2048, 512);
WINNOW_LINEAR(Q8_0, 1024, 256, 512);
WINNOW_LINEAR(Q8_0, 256, 1024, 512);
WINNOW_LINEAR(Q8_0, 256, 256, 128);
WINNOW_LINEAR(Q8_0, 4096, 256, 1);

}  // namespace
}  // namespace winnow

BENCHMARK_MAIN();
