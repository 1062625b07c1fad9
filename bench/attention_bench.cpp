// SPDX-License-Identifier: Apache-2.0
// CPU attention: cpu.simd beside cpu.reference, in one run on one machine. Shapes are those of the demonstration model
// (4 heads, topk 128, 8 index heads) and of one GLM-5 rank (8 heads, topk 2048, 32 index heads).
// --simd=AVX2 (SSE4, ...) measures what a lesser CPU would run. Counters: FLOP/s of useful work (2 products per row, 1
// per key), bytes/s of rows or keys read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_backends.hpp"
#include "core/threads.hpp"
#include "hwy/targets.h"

namespace winnow {
namespace {

const DeviceInfo kCpu{.kind = DeviceKind::cpu, .name = "host"};

// xorshift: values do not matter, but they must not be zero.
float next_value(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
}

std::vector<float> values(std::size_t count, uint64_t seed) {
  std::vector<float> out(count);
  uint64_t state = seed * 2654435761u + 88172645463325252ULL;
  for (float& x : out) x = next_value(state);
  return out;
}

std::vector<std::byte> quantised_pool(const Backend& backend, const CacheWriteProblem& shape, int64_t slots) {
  CacheWriteProblem p = shape;
  p.tokens = static_cast<int32_t>(slots);
  p.activations = DType::f32;
  const std::vector<float> latent = values(static_cast<std::size_t>(slots * p.d_nope), 1);
  const std::vector<float> rope = values(static_cast<std::size_t>(slots * p.d_rope), 2);
  const int64_t bytes = row_bytes(p.rows, p.d_nope, p.d_rope);
  std::vector<std::byte> pool(static_cast<std::size_t>(slots * bytes));
  std::vector<int32_t> all(static_cast<std::size_t>(slots));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  CacheWriteBuffers b;
  b.latent = latent.data();
  b.rope = rope.data();
  b.latent_stride = p.d_nope;
  b.rope_stride = p.d_rope;
  b.slots = TensorView<const int32_t>(all.data(), {slots});
  b.cache = {pool.data(), slots / p.page_size, bytes * p.page_size, bytes};
  (void)backend.run_write(backend, p, b, kCpu, {}).ok();
  return pool;
}

struct MlaShape {
  int32_t tokens, heads, topk;
  RowFormat rows;
};

void sparse_mla(benchmark::State& state, const Backend& backend, MlaShape shape, int team) {
  set_threads(team);
  constexpr int64_t kSlots = 4096;
  SparseMlaProblem p{.tokens = shape.tokens,
                     .q_heads = shape.heads,
                     .topk = shape.topk,
                     .page_size = 64,
                     .d_nope = 512,
                     .d_rope = 64,
                     .d_v = 512,
                     .softmax_scale = 0.0625f,
                     .rows = shape.rows,
                     .activations = DType::f32};
  std::vector<std::byte> pool =
      quantised_pool(cpu_simd_backend(), {.d_nope = 512, .d_rope = 64, .page_size = 64, .rows = shape.rows}, kSlots);
  std::vector<float> q = values(static_cast<std::size_t>(int64_t{p.tokens} * p.q_heads * 576), 3);
  std::vector<float> out(static_cast<std::size_t>(int64_t{p.tokens} * p.q_heads * 512));
  std::vector<int32_t> slots(static_cast<std::size_t>(int64_t{p.tokens} * p.topk));
  uint64_t random = 99;
  for (int32_t& slot : slots) {
    (void)next_value(random);
    slot = static_cast<int32_t>(random % kSlots);
  }
  SparseMlaBuffers b;
  const int64_t bytes = row_bytes(p.rows, 512, 64);
  b.q = {q.data(), int64_t{p.q_heads} * 576, 576};
  b.cache = {pool.data(), kSlots / 64, bytes * 64, bytes};
  b.topk_slots = TensorView<const int32_t>(slots.data(), {p.tokens, p.topk});
  b.out = {out.data(), int64_t{p.q_heads} * 512, 512};
  for (auto _ : state) {
    const Status status = backend.run_mla(backend, p, b, kCpu, {});
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::DoNotOptimize(out.data());
  }
  const double rows = static_cast<double>(p.tokens) * p.topk * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(rows * p.q_heads * 2 * (576 + 512), benchmark::Counter::kIsRate);
  state.counters["bytes/s"] = benchmark::Counter(rows * static_cast<double>(bytes), benchmark::Counter::kIsRate);
}

struct SelectShape {
  int32_t tokens, heads, topk;
  int64_t length;
  KeyFormat keys;
};

void index_select(benchmark::State& state, const Backend& backend, SelectShape shape, int team) {
  set_threads(team);
  constexpr int64_t kDim = 128;
  const int64_t pages = shape.length / 64;
  IndexSelectProblem p{.tokens = shape.tokens,
                       .index_heads = shape.heads,
                       .index_dim = kDim,
                       .topk = shape.topk,
                       .page_size = 64,
                       .max_len = shape.length,
                       .keys = shape.keys,
                       .q_type = DType::f32};
  std::vector<float> q = values(static_cast<std::size_t>(int64_t{p.tokens} * p.index_heads * kDim), 4);
  const std::vector<float> weight = values(static_cast<std::size_t>(int64_t{p.tokens} * p.index_heads), 5);
  std::vector<float> key = values(static_cast<std::size_t>(shape.length * kDim), 6);
  std::vector<bf16> narrow(key.size());
  for (std::size_t i = 0; i < key.size(); ++i) narrow[i] = to_bf16(key[i]);
  std::vector<int32_t> table(static_cast<std::size_t>(pages)), seq(static_cast<std::size_t>(p.tokens), 0), len(seq);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  for (int32_t t = 0; t < p.tokens; ++t) {
    len[static_cast<std::size_t>(t)] = static_cast<int32_t>(shape.length - p.tokens + t + 1);
  }
  std::vector<int32_t> out(static_cast<std::size_t>(int64_t{p.tokens} * p.topk));
  IndexSelectBuffers b;
  const bool wide = shape.keys == KeyFormat::f32;
  b.q = {q.data(), int64_t{p.index_heads} * kDim, kDim};
  b.weight = TensorView<const float>(weight.data(), {p.tokens, p.index_heads});
  b.keys = {wide ? reinterpret_cast<std::byte*>(key.data()) : reinterpret_cast<std::byte*>(narrow.data()), pages,
            key_page_bytes(shape.keys, 64, kDim)};
  b.page_table = TensorView<const int32_t>(table.data(), {1, pages});
  b.seq = TensorView<const int32_t>(seq.data(), {p.tokens});
  b.len = TensorView<const int32_t>(len.data(), {p.tokens});
  b.out = TensorView<int32_t>(out.data(), {p.tokens, p.topk});
  for (auto _ : state) {
    const Status status = backend.run_select(backend, p, b, kCpu, {});
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::DoNotOptimize(out.data());
  }
  const double pairs = static_cast<double>(p.tokens) * (static_cast<double>(shape.length) - 0.5 * p.tokens) *
                       static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(pairs * p.index_heads * 2 * kDim, benchmark::Counter::kIsRate);
}

void add_mla(const std::string& name, MlaShape shape) {
  for (int team : {1, 2}) {
    benchmark::RegisterBenchmark(("mla/" + name + "/cpu.simd/threads:" + std::to_string(team)).c_str(),
                                 [=](benchmark::State& state) { sparse_mla(state, cpu_simd_backend(), shape, team); })
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark(("mla/" + name + "/cpu.reference").c_str(), [=](benchmark::State& state) {
    sparse_mla(state, cpu_reference_backend(), shape, 1);
  })->UseRealTime();
}

void add_select(const std::string& name, SelectShape shape) {
  for (int team : {1, 2}) {
    benchmark::RegisterBenchmark(("select/" + name + "/cpu.simd/threads:" + std::to_string(team)).c_str(),
                                 [=](benchmark::State& state) { index_select(state, cpu_simd_backend(), shape, team); })
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark(("select/" + name + "/cpu.reference").c_str(), [=](benchmark::State& state) {
    index_select(state, cpu_reference_backend(), shape, 1);
  })->UseRealTime();
}

// Takes --simd=NAME out of the arguments and lets dispatch see nothing better. False when the CPU lacks it.
bool choose_instruction_set(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, 7) != "--simd=") continue;
    for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
      const int64_t target = left & -left;
      if (argument.substr(7) != hwy::TargetName(target)) continue;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(target);
      std::copy(argv + i + 1, argv + argc, argv + i);
      --argc;
      return true;
    }
    return false;
  }
  return true;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  using namespace winnow;
  add_mla("decode_demo_f32", {1, 4, 128, RowFormat::f32});
  add_mla("decode_demo_bf16", {1, 4, 128, RowFormat::bf16});
  add_mla("decode_demo_fp8", {1, 4, 128, RowFormat::v32_fp8});
  add_mla("prefill_demo_bf16", {128, 4, 128, RowFormat::bf16});
  add_mla("decode_glm_rank_bf16", {1, 8, 2048, RowFormat::bf16});
  add_mla("decode_glm_64_heads_fp8", {1, 64, 2048, RowFormat::v32_fp8});
  add_select("decode_demo_f32", {1, 8, 128, 4096, KeyFormat::f32});
  add_select("decode_demo_bf16", {1, 8, 128, 4096, KeyFormat::bf16});
  add_select("prefill_demo_bf16", {128, 8, 128, 4096, KeyFormat::bf16});
  add_select("decode_glm_bf16", {1, 32, 2048, 32768, KeyFormat::bf16});
  if (!choose_instruction_set(argc, argv)) {
    std::cerr << "attention_bench: this CPU does not have the instruction set that --simd names\n";
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
