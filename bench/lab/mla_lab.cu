// SPDX-License-Identifier: Apache-2.0
// Lab for the sparse MLA kernels: float64 oracle on small shapes, then times by CUDA graphs of 20 launches and a sweep
// of splits. winnow-kernels is the program to quote; this one reaches inside the launcher.
//   nvcc -std=c++20 -O3 -Isrc -gencode arch=compute_90,code=sm_90 bench/lab/mla_lab.cu <objects> -o mla_lab
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/mla_launch.cpp"
#include "core/dtype.hpp"

using namespace winnow;

#define OK(call)                                                                        \
  do {                                                                                  \
    cudaError_t e_ = (call);                                                            \
    if (e_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

static DeviceInfo device;
static int force_splits = 0, only_part = 0;

static void launch(const SparseMlaProblem& p, const SparseMlaBuffers& b, std::byte* ws, cudaStream_t stream) {
  cuda::MlaPlan plan = cuda::plan_mla(p, device);
  if (force_splits && plan.tile->stages > 1) {  // a ring of one has room for one tile: as many splits as tiles
    plan.splits = force_splits;
    plan.partial_bytes = int64_t(p.tokens) * plan.head_blocks * plan.splits * cuda::heads_of(*plan.tile) * 2048;
  }
  Execution e;
  e.stream = stream;
  e.workspace = ws;
  if (only_part == 0) {
    if (Status st = cuda::enqueue(p, b, plan, device, e); !st.ok()) {
      std::printf("%s\n", st.message().c_str());
      std::exit(1);
    }
    return;
  }
  const auto params = cuda::params_of(p, b, plan, ws);
  const unsigned blocks = p.tokens * plan.head_blocks;
  const cuda::MlaTile& t = *plan.tile;
  if (only_part == 1)
    (void)cuda::launch(cuda::function_of(t), params, blocks * plan.splits, cuda::threads_of(t), plan.shared_bytes,
                       stream, device, t.name)
        .ok();
  else
    (void)cuda::launch(cuda::merge_of(t), params, blocks * cuda::merge_blocks_for(t, plan.splits), cuda::kMergeThreads,
                       0, stream, device, "merge")
        .ok();
}

// ---- data
template <class T>
static T* upload(const std::vector<T>& v) {
  T* d;
  OK(cudaMalloc(&d, std::max<size_t>(v.size(), 1) * sizeof(T)));
  OK(cudaMemcpy(d, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return d;
}
struct Case {
  RowFormat rows;
  int heads, tokens, topk, rope, page;
  int64_t row_stride;
  float scale;
  bool sink;
  int peaky;
  int splits;
};

static bool run_case(const Case& c, int number) {
  std::mt19937 rng(1234 + number);
  std::normal_distribution<float> normal;
  const int slots = 600, pages = (slots + c.page - 1) / c.page, total = pages * c.page;
  const int dqk = 512 + c.rope;
  const RowLayout lay = row_layout(c.rows, 512, c.rope);
  const int64_t row_stride = c.row_stride ? c.row_stride : lay.bytes, page_stride = row_stride * c.page + 32;
  std::vector<uint8_t> cache(pages * page_stride, 0xFF);  // NaN in bf16, and NaN codes
  std::vector<float> rows(size_t(total) * dqk);
  const bool fp8 = c.rows == RowFormat::v32_fp8;
  for (int s = 0; s < total - 5; ++s) {  // last five stay NaN and unused
    uint8_t* at = cache.data() + (s / c.page) * page_stride + (s % c.page) * row_stride;
    for (int d = 0; d < dqk; ++d) {
      float x = normal(rng) * 0.7f;
      if (d < 512 && fp8) {
        const float group_scale[4] = {0.0123f, 1.7e-3f, 3.1f, 0.05f};
        if (d % 128 == 0) {
          float sc = group_scale[d / 128] * (1 + (s % 7) * 0.13f);
          std::memcpy(at + 512 + d / 128 * 4, &sc, 4);
        }
        float sc;
        std::memcpy(&sc, at + 512 + d / 128 * 4, 4);
        e4m3 e = s % 11 == 3 ? e4m3{uint8_t(rng() & 0x87)} : to_e4m3(normal(rng) * 0.5f / 0.05f);
        at[d] = e.bits;
        x = to_float(e) * sc;
      } else {
        bf16 b = to_bf16(x);
        x = to_float(b);
        std::memcpy(at + (d < 512 ? d * 2 : lay.rope + (d - 512) * 2), &b, 2);
      }
      rows[size_t(s) * dqk + d] = x;
    }
  }
  const int q_stride = dqk + 8;
  std::vector<uint16_t> q(size_t(c.tokens) * c.heads * q_stride, 0xFFFF);
  for (int t = 0; t < c.tokens; ++t)
    for (int h = 0; h < c.heads; ++h)
      for (int d = 0; d < dqk; ++d)
        q[(size_t(t) * c.heads + h) * q_stride + d] =
            t % 5 == 1 ? 0x7FC0 : to_bf16(normal(rng) * (c.peaky ? 5.0f : 0.5f)).bits;
  std::vector<int32_t> list(size_t(c.tokens) * (c.topk + 3), -1), len(c.tokens, c.topk);
  for (int t = 0; t < c.tokens; ++t)
    for (int i = 0; i < c.topk; ++i) {
      int32_t s = rng() % (total - 5);
      if (t % 5 == 1) s = -1;
      if (t % 5 == 2) {
        const int k = rng() % 6;
        s = k == 0 ? -1 : k == 1 ? INT32_MIN : k == 2 ? INT32_MAX : k == 3 ? total : s;
        if (i / 64 % 3 == 1) s = -1;
      }
      if (t % 5 == 4 && i % 2) s = 7;
      list[size_t(t) * (c.topk + 3) + i] = s;
    }
  for (int t = 3; t < c.tokens; t += 5) len[t] = std::min(37, c.topk);
  if (c.tokens > 5) len[5] = -3;
  if (c.tokens > 6) len[6] = c.topk + 100;
  std::vector<float> sink(c.heads);
  for (int h = 0; h < c.heads; ++h) sink[h] = h % 4 == 1 ? -INFINITY : h % 4 == 2 ? INFINITY : normal(rng);
  std::vector<uint16_t> out(size_t(c.tokens) * c.heads * 512, 0x7FC1);
  std::vector<float> lse(size_t(c.tokens) * c.heads, NAN);
  SparseMlaProblem p;
  p.tokens = c.tokens;
  p.q_heads = c.heads;
  p.topk = c.topk;
  p.page_size = c.page;
  p.d_nope = 512;
  p.d_rope = c.rope;
  p.d_v = 512;
  p.softmax_scale = c.scale;
  p.rows = c.rows;
  SparseMlaBuffers b;
  auto *dq = upload(q), *dout = upload(out);
  auto* dc = upload(cache);
  auto* dl = upload(list);
  auto* dn = upload(len);
  auto* ds = upload(sink);
  auto* dlse = upload(lse);
  b.q = {dq, int64_t(c.heads) * q_stride, q_stride};
  b.cache = {reinterpret_cast<std::byte*>(dc), pages, page_stride, row_stride};
  b.topk_slots = TensorView<const int32_t>(dl, {c.tokens, c.topk});
  b.topk_slots.strides[0] = c.topk + 3;
  b.topk_len = TensorView<const int32_t>(dn, {c.tokens});
  if (c.sink) b.sink = TensorView<const float>(ds, {c.heads});
  b.out = {dout, int64_t(c.heads) * 512, 512};
  b.lse = TensorView<float>(dlse, {c.tokens, c.heads});
  force_splits = c.splits;
  std::byte* ws;
  OK(cudaMalloc(&ws, size_t(c.tokens) * 2 * 64 * 64 * 2064));
  OK(cudaMemset(ws, 0xFF, size_t(c.tokens) * 2 * 64 * 64 * 2064));
  launch(p, b, ws, 0);
  OK(cudaDeviceSynchronize());
  auto out2 = out;
  auto lse2 = lse;
  OK(cudaMemcpy(out.data(), dout, out.size() * 2, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(lse.data(), dlse, lse.size() * 4, cudaMemcpyDeviceToHost));
  bool same = true;
  for (int r = 0; r < 3; ++r) {
    OK(cudaMemset(dout, 0xFF, out.size() * 2));
    launch(p, b, ws, 0);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(out2.data(), dout, out.size() * 2, cudaMemcpyDeviceToHost));
    same = same && !std::memcmp(out.data(), out2.data(), out.size() * 2);
  }
  for (void* d : {(void*)dq, (void*)dout, (void*)dc, (void*)dl, (void*)dn, (void*)ds, (void*)dlse, (void*)ws})
    OK(cudaFree(d));
  double worst = 0, worst_lse = 0, sxy = 0, sxx = 0;
  std::string bad;
  std::vector<double> ref(out.size()), ref_lse(lse.size());
  std::vector<std::thread> pool;
  for (int w = 0; w < 16; ++w)
    pool.emplace_back([&, w] {
      for (int th = w; th < c.tokens * c.heads; th += 16) {
        const int t = th / c.heads, h = th % c.heads, n = std::min(std::max(len[t], 0), c.topk);
        std::vector<std::pair<int, double>> s;
        double m = -INFINITY;
        for (int i = 0; i < n; ++i) {
          const int slot = list[size_t(t) * (c.topk + 3) + i];
          if (slot < 0 || slot >= total) continue;
          double x = 0;
          for (int d = 0; d < dqk; ++d)
            x += double(to_float(bf16{q[size_t(th) * q_stride + d]})) * rows[size_t(slot) * dqk + d];
          s.push_back({slot, x * c.scale});
          m = std::max(m, x * c.scale);
        }
        double l = 0;
        std::vector<double> o(512, 0.0);
        for (auto& [slot, x] : s) {
          const double e = std::exp(x - m);
          l += e;
          for (int d = 0; d < 512; ++d) o[d] += e * rows[size_t(slot) * dqk + d];
        }
        ref_lse[th] = s.empty() ? -INFINITY : m + std::log(l);
        const double f = s.empty() ? 0 : 1 / l / (c.sink ? 1 + std::exp(double(sink[h]) - ref_lse[th]) : 1);
        for (int d = 0; d < 512; ++d) ref[size_t(th) * 512 + d] = s.empty() ? 0 : o[d] * f;
      }
    });
  for (auto& th : pool) th.join();
  for (int th = 0; th < c.tokens * c.heads; ++th) {
    // each group of 128 columns has its own magnitude
    for (int grp = 0; grp < 4; ++grp) {
      double rms = 0;
      for (int d = 0; d < 128; ++d) rms += ref[th * 512 + grp * 128 + d] * ref[th * 512 + grp * 128 + d];
      rms = std::sqrt(rms / 128);
      for (int d = grp * 128; d < grp * 128 + 128; ++d) {
        const double y = ref[size_t(th) * 512 + d], x = to_float(bf16{out[size_t(th) * 512 + d]});
        const double lim = std::ldexp(std::fabs(y), -7) + std::ldexp(rms, -6);
        const double e = y == x ? 0 : std::fabs(x - y) / lim;
        sxy += x * y;
        sxx += x * x + y * y;
        if (!(e <= 1) && bad.empty())
          bad = concat("token ", th / c.heads, " head ", th % c.heads, " col ", d, " got ", x, " want ", y);
        if (!(e <= worst)) worst = e;
      }
    }
    const double a = lse[th], r = ref_lse[th];
    const double e = a == r ? 0 : std::fabs(a - r) / (1e-5 + 1e-6 * std::fabs(r) * 4 + 2e-5 * c.peaky);
    if (!(e <= worst_lse)) worst_lse = e;
    if (!(e <= 1) && bad.empty())
      bad = concat("lse token ", th / c.heads, " head ", th % c.heads, " got ", a, " want ", r);
  }
  const bool pass = bad.empty() && same;
  std::printf(
      "%s case %2d %s heads %3d topk %4d rope %2d page %3d splits %2d peaky %d: out %.3f of limit, diff %.2e, lse "
      "%.3f%s %s\n",
      pass ? "ok  " : "FAIL", number, fp8 ? "fp8 " : "bf16", c.heads, c.topk, c.rope, c.page, c.splits, c.peaky, worst,
      sxx > 0 ? 1 - 2 * sxy / sxx : 0.0, worst_lse, same ? "" : " NOT REPEATABLE", bad.c_str());
  return pass;
}

// ---- times
__global__ void fill_random(uint32_t* p, size_t words, int fp8_row, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x) {
    uint32_t x = uint32_t(i) * 2654435761u + seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    x ^= x >> 16;
    if (fp8_row) {
      const int w = i % 164;
      p[i] = w < 128 ? (x & 0xB7B7B7B7u) : w < 132 ? __float_as_uint(0.02f) : ((x & 0x80FF80FFu) | 0x3F003F00u);
    } else
      p[i] = (x & 0x80FF80FFu) | 0x3F003F00u;  // +-[0.5, 2)
  }
}
__global__ void fill_list(int32_t* p, int tokens, int topk, uint32_t slots) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < tokens * topk) {
    const uint32_t t = i / topk, k = i % topk;
    p[i] = (k * 40503u + t * 977u + 12345u * t * t) * 2654435761u % slots;
  }
}
static double time_graph(const std::function<void(cudaStream_t)>& f, int per_graph, int repeats) {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  cudaGraph_t g;
  cudaGraphExec_t e;
  f(s);
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < per_graph; ++i) f(s);
  OK(cudaStreamEndCapture(s, &g));
  OK(cudaGraphInstantiate(&e, g, 0));
  std::vector<float> ms;
  cudaEvent_t a, b;
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  for (int r = 0; r < repeats + 2; ++r) {
    OK(cudaEventRecord(a, s));
    OK(cudaGraphLaunch(e, s));
    OK(cudaEventRecord(b, s));
    OK(cudaEventSynchronize(b));
    float m;
    OK(cudaEventElapsedTime(&m, a, b));
    if (r >= 2) ms.push_back(m);
  }
  std::sort(ms.begin(), ms.end());
  OK(cudaGraphExecDestroy(e));
  OK(cudaGraphDestroy(g));
  OK(cudaStreamDestroy(s));
  return ms[ms.size() / 2] * 1000.0 / per_graph;
}

static uint32_t *cache_bf16, *cache_fp8, *q_all;
static int32_t* lists;
static uint16_t* out_all;
static std::byte* ws_all;
static float* lse_all;
static double bench_one(RowFormat rows, int heads, int tokens, uint32_t kv, int splits, bool print = true) {
  force_splits = splits;
  fill_list<<<(tokens * 2048 + 255) / 256, 256>>>(lists, tokens, 2048, kv);
  SparseMlaProblem p;
  p.tokens = tokens;
  p.q_heads = heads;
  p.topk = 2048;
  p.page_size = 64;
  p.d_nope = 512;
  p.d_rope = 64;
  p.d_v = 512;
  p.softmax_scale = 0.0417f;
  p.rows = rows;
  const int64_t rb = row_bytes(rows, 512, 64);
  SparseMlaBuffers b;
  b.q = {q_all, int64_t(heads) * 576, 576};
  b.cache = {(std::byte*)(rows == RowFormat::bf16 ? cache_bf16 : cache_fp8), kv / 64, rb * 64, rb};
  b.topk_slots = TensorView<const int32_t>(lists, {tokens, 2048});
  b.out = {out_all, int64_t(heads) * 512, 512};
  b.lse = TensorView<float>(lse_all, {tokens, heads});
  const double us = tokens >= 1024 ? time_graph([&](cudaStream_t s) { launch(p, b, ws_all, s); }, 2, 9)
                                   : time_graph([&](cudaStream_t s) { launch(p, b, ws_all, s); }, 20, 21);
  const double flop = 2.0 * tokens * heads * 2048 * 1088, bytes = double(tokens) * (2048.0 * rb + heads * 1088 * 2);
  const cuda::MlaPlan plan = cuda::plan_mla(p, device);
  if (print)
    std::printf("%s heads %3d tokens %4d kv %6u splits %2d: %8.2f us  %6.2f TB/s  %6.1f TFLOP/s   %s\n",
                rows == RowFormat::bf16 ? "bf16" : "fp8 ", heads, tokens, kv, splits ? splits : plan.splits, us,
                bytes / us * 1e-6, flop / us * 1e-6, plan.tile->name);
  return us;
}

int main(int argc, char** argv) {
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  device.kind = DeviceKind::cuda;
  device.name = prop.name;
  device.sm = prop.major * 10 + prop.minor;
  device.units = prop.multiProcessorCount;
  device.smem_per_block = prop.sharedMemPerBlockOptin;
  device.smem_per_sm = prop.sharedMemPerMultiprocessor;
  const std::string mode = argc > 1 ? argv[1] : "all";
  if (mode.find("99") != std::string::npos) device.smem_per_block = 99 * 1024, device.smem_per_sm = 100 * 1024;
  if (mode.find("sm80") != std::string::npos) device.sm = 80;
  if (Status s = cuda::init_mla(device); !s.ok()) {
    std::printf("%s\n", s.message().c_str());
    return 1;
  }
  if (mode.find("check") != std::string::npos || mode == "all") {
    int n = 0, bad = 0;
    for (RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8}) {
      for (int heads : {1, 8, 12, 16, 24, 32, 48, 64, 96, 128})
        for (int splits : {1, 3})
          bad += !run_case({rows, heads, 7, 2048, heads == 12 ? 0 : 64, 61, 0, 0.05f, heads % 3 == 0, 0, splits}, n++);
      for (int heads : {8, 16, 32, 64}) {
        for (int topk : {0, 1, 15, 33, 65, 97, 2176})
          bad += !run_case({rows, heads, 6, topk, topk == 33 ? 0 : 64, 64, 1168, 0.05f, true, 0, topk == 2176 ? 5 : 0},
                           n++);
        bad += !run_case({rows, heads, 5, 700, 64, 1, 0, 0.05f, false, 1, 0}, n++);
        bad += !run_case({rows, heads, 5, 4096, 64, 64, 0, 0.05f, false, 0, 32}, n++);
      }
    }
    std::printf("%d cases, %d failed\n", n, bad);
    if (bad) return 1;
  }
  if (mode.find("bench") != std::string::npos || mode == "all") {
    const uint32_t kv = 131072;
    OK(cudaMalloc(&cache_bf16, size_t(kv) * 1152));
    OK(cudaMalloc(&cache_fp8, size_t(kv) * 656));
    OK(cudaMalloc(&q_all, size_t(4096) * 64 * 1152));
    OK(cudaMalloc(&lists, size_t(4096) * 2048 * 4));
    OK(cudaMalloc(&out_all, size_t(4096) * 128 * 1024));
    OK(cudaMalloc(&ws_all, size_t(1) << 30));
    OK(cudaMalloc(&lse_all, 4096 * 128 * 4));
    fill_random<<<1024, 256>>>(cache_bf16, size_t(kv) * 288, 0, 1);
    fill_random<<<1024, 256>>>(cache_fp8, size_t(kv) * 164, 1, 2);
    fill_random<<<1024, 256>>>(q_all, size_t(4096) * 64 * 288, 0, 3);
    std::byte *x, *y;
    OK(cudaMalloc(&x, size_t(2) << 30));
    OK(cudaMalloc(&y, size_t(2) << 30));
    const double copy = time_graph(
        [&](cudaStream_t s) { OK(cudaMemcpyAsync(y, x, size_t(2) << 30, cudaMemcpyDeviceToDevice, s)); }, 3, 5);
    std::printf("%s sm_%d, copy %.2f TB/s\n", prop.name, device.sm, 2.0 * (size_t(2) << 30) / copy * 1e-6);
    if (argc > 4) {
      bench_one(argv[2][0] == 'b' ? RowFormat::bf16 : RowFormat::v32_fp8, std::atoi(argv[3]), std::atoi(argv[4]), kv,
                argc > 5 ? std::atoi(argv[5]) : 0);
      return 0;
    }
    for (int heads : {8, 16, 32, 64})
      for (int tokens : {1, 16, 64, 256}) bench_one(RowFormat::bf16, heads, tokens, kv, 0);
    for (int heads : {8, 16, 32, 64})
      for (int tokens : {1, 16, 64, 256}) bench_one(RowFormat::v32_fp8, heads, tokens, kv, 0);
    bench_one(RowFormat::bf16, 64, 4096, 32768, 0);
    bench_one(RowFormat::v32_fp8, 64, 4096, 32768, 0);
    bench_one(RowFormat::bf16, 8, 4096, 32768, 0);
    for (auto [r, h, t] : {std::tuple{RowFormat::bf16, 8, 1},
                           {RowFormat::bf16, 8, 64},
                           {RowFormat::v32_fp8, 8, 1},
                           {RowFormat::v32_fp8, 8, 64},
                           {RowFormat::bf16, 64, 1},
                           {RowFormat::bf16, 64, 64}}) {
      std::printf("parts %s heads %d tokens %d:", r == RowFormat::bf16 ? "bf16" : "fp8", h, t);
      for (int part : {0, 1, 2}) {
        only_part = part;
        std::printf(" %.2f", bench_one(r, h, t, kv, 0, false));
      }
      only_part = 0;
      std::printf(" us (both, first, merge)\n");
    }
    if (mode.find("sweep") != std::string::npos)
      for (auto [r, h, b] : {std::tuple{RowFormat::bf16, 8, 1},
                             {RowFormat::bf16, 8, 64},
                             {RowFormat::bf16, 8, 256},
                             {RowFormat::bf16, 16, 64},
                             {RowFormat::bf16, 32, 64},
                             {RowFormat::bf16, 64, 1},
                             {RowFormat::bf16, 64, 16},
                             {RowFormat::v32_fp8, 8, 64},
                             {RowFormat::v32_fp8, 8, 1}}) {
        std::printf("%s heads %d tokens %d:", r == RowFormat::bf16 ? "bf16" : "fp8", h, b);
        for (int s : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32})
          if (size_t(b) * s * h * 2048 < (size_t(1) << 29))
            std::printf(" %d:%.1f", s, bench_one(r, h, b, kv, s, false));
        std::printf("\n");
      }
  }
  return 0;
}
