// SPDX-License-Identifier: Apache-2.0
// Lab of the CUDA indexer, cache writer and merge: a float64 check over many shapes, then times from CUDA graphs.
// Build: nvcc -std=c++20 -O3 --expt-relaxed-constexpr -arch=native -Isrc -Iinclude -Xcompiler -fopenmp -o select_lab
//   bench/lab/select_lab.cu src/indexer/cuda/*.cu src/indexer/cuda/select_admit.cpp src/backends/cuda/cache_write.cu
//   src/backends/cuda/merge.cu src/contract/{oracle,check,row_format}.cpp src/core/{dtype,status,log}.cpp
//   select_lab check [seed]     exit status 1 when anything differs
//   select_lab bench            microseconds, median of 15 replays of a graph of 20 launches
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/cache_write.hpp"
#include "backends/cuda/merge.hpp"
#include "contract/oracle.hpp"
#include "indexer/cuda/select.hpp"
#include "indexer/cuda/topk.hpp"
#include "indexer/topk.hpp"

using namespace winnow;

namespace {

void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::printf("CUDA: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(2);
}
void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::printf("%s: %s\n", what, status.message().c_str());
  std::exit(2);
}

template <class T>
struct Device {
  T* data = nullptr;
  std::size_t size = 0;
  explicit Device(std::size_t n) : size(n) {
    must(cudaMalloc(&data, std::max<std::size_t>(n, 1) * sizeof(T)), "malloc");
    must(cudaMemset(data, 0xFF, n * sizeof(T)), "memset");  // NaN, -1
  }
  explicit Device(const std::vector<T>& host) : Device(host.size()) { put(host); }
  Device(const Device&) = delete;
  ~Device() { cudaFree(data); }
  void put(const std::vector<T>& host) {
    must(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "put");
  }
  std::vector<T> get() const {
    std::vector<T> host(size);
    must(cudaMemcpy(host.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "get");
    return host;
  }
};

DeviceInfo device_info() {
  cudaDeviceProp p{};
  must(cudaGetDeviceProperties(&p, 0), "properties");
  DeviceInfo d;
  d.kind = DeviceKind::cuda;
  d.name = p.name;
  d.sm = p.major * 10 + p.minor;
  d.units = p.multiProcessorCount;
  d.smem_per_block = static_cast<int64_t>(p.sharedMemPerBlockOptin);
  d.smem_per_sm = static_cast<int64_t>(p.sharedMemPerMultiprocessor);
  return d;
}

using Rng = std::mt19937;
float normal(Rng& rng) { return std::normal_distribution<float>()(rng); }
int failures = 0;
void report(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAIL %s\n", what.c_str());
}

// ---------------------------------------------------------------------------------------------- top-k alone

enum class Pattern { normal, equal, two, zeros, nans, infs, up, down, border, peaky, striped, count };

std::vector<float> make_scores(Pattern pattern, int rows, int64_t pitch, int width, Rng& rng) {
  std::vector<float> s(static_cast<std::size_t>(rows * pitch), std::nanf(""));
  const float inf = std::numeric_limits<float>::infinity();
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < width; ++i) {
      float x = normal(rng);
      switch (pattern) {
        case Pattern::equal: x = 3.25f; break;
        case Pattern::two: x = x > 0.5f ? 2.0f : 1.0f; break;
        case Pattern::zeros: x = x > 1.5f ? x : x > 0 ? 0.0f : -0.0f; break;
        case Pattern::nans: x = x > 0 ? std::nanf("") : x; break;
        case Pattern::infs: x = i > width / 3 ? -inf : x > 2 ? inf : x; break;
        case Pattern::up: x = static_cast<float>(i) * 0.37f - 100.0f; break;
        case Pattern::down: x = 100.0f - static_cast<float>(i) * 0.37f; break;
        case Pattern::border: x = x > 2.2f ? x : x > -1.0f ? 0.125f : x; break;
        case Pattern::striped: x = i / 128 % 32 == 5 ? x + 20.0f : x; break;  // all of one segment's
        case Pattern::peaky: x = std::exp(8 * x); break;
        default: break;
      }
      s[static_cast<std::size_t>(r * pitch + i)] = x;
    }
  }
  return s;
}

std::vector<int32_t> reference_topk(const float* row, int n, int topk) {
  std::vector<uint64_t> keys(static_cast<std::size_t>(std::max(n, 0)));
  for (int i = 0; i < n; ++i) keys[static_cast<std::size_t>(i)] = topk_key(row[i], i);
  const auto k = std::min<std::size_t>(static_cast<std::size_t>(topk), keys.size());
  if (k < keys.size()) std::nth_element(keys.begin(), keys.begin() + static_cast<long>(k), keys.end());
  std::vector<int32_t> out;
  for (std::size_t i = 0; i < k; ++i) out.push_back(topk_position(keys[i]));
  std::sort(out.begin(), out.end());
  out.resize(static_cast<std::size_t>(topk), -1);
  return out;
}

void check_topk(int width, int topk, Pattern pattern, int64_t pitch, const DeviceInfo& device, Rng& rng) {
  const int rows = width > 200000 ? 2 : 6;
  const std::vector<float> scores = make_scores(pattern, rows, pitch, width, rng);
  std::vector<int32_t> len(static_cast<std::size_t>(rows), width);
  if (rows == 6) len = {width, topk, topk + 1, 0, -7, width - 1};
  len.back() = width + 5;
  Device<float> d_scores(scores);
  Device<int32_t> d_len(len), d_out(static_cast<std::size_t>(rows * topk)), d_out_len(static_cast<std::size_t>(rows));
  const int64_t bytes = cuda::topk_workspace_bytes(rows, width, topk);
  Device<std::byte> workspace(static_cast<std::size_t>(bytes));
  const cuda::TopkRows r{d_scores.data, pitch, rows, width, d_len.data, topk, d_out.data, topk, d_out_len.data};
  must(cuda::run_topk(r, device, {nullptr, workspace.data, bytes}), "run_topk");
  must(cudaDeviceSynchronize(), "topk");
  const std::vector<int32_t> out = d_out.get(), out_len = d_out_len.get();
  for (int i = 0; i < rows; ++i) {
    const int n = std::clamp(len[static_cast<std::size_t>(i)], 0, width);
    const auto want = reference_topk(scores.data() + i * pitch, n, topk);
    const bool same = std::equal(want.begin(), want.end(), out.begin() + static_cast<long>(i) * topk);
    report(same && out_len[static_cast<std::size_t>(i)] == std::min(n, topk),
           "topk width " + std::to_string(width) + " k " + std::to_string(topk) + " pattern " +
               std::to_string(static_cast<int>(pattern)) + " row " + std::to_string(i));
  }
}

// ---------------------------------------------------------------------------------------------- scores and top-k

struct SelectCase {
  const char* name;
  int tokens, sequences, heads, topk, page_size;
  int max_len;
  KeyFormat keys = KeyFormat::fp8;
  DType q = DType::bf16;
  bool slots = true;
  bool starts = false;
  bool odd_strides = false;  // page stride that is no multiple of 16
  int64_t workspace = 0;     // 0: what the plan asks for
  bool damaged = false;
};

struct SelectData {
  IndexSelectProblem p;
  std::vector<uint8_t> q, keys;
  std::vector<float> weight;
  std::vector<int32_t> table, seq, start, len;
  int64_t page_stride, pages;
};

uint8_t random_e4m3(Rng& rng, float scale) { return to_e4m3(normal(rng) * scale).bits; }
void put_bf16(std::vector<uint8_t>& bytes, std::size_t index, float x) {
  const bf16 value = to_bf16(x);
  std::memcpy(bytes.data() + index * 2, &value, 2);
}

SelectData make_case(const SelectCase& c, Rng& rng) {
  SelectData d;
  d.p = {c.tokens, c.heads, 128, c.topk, c.page_size, c.max_len, c.keys, c.q, c.slots};
  const auto elements = static_cast<std::size_t>(c.tokens * c.heads * 128);
  d.q.resize(elements * static_cast<std::size_t>(bytes_of(c.q)));
  for (std::size_t i = 0; i < elements; ++i) {
    const float x = normal(rng) * (i % 3 == 0 ? 1e-3f : 1.0f);
    if (c.q == DType::e4m3)
      d.q[i] = to_e4m3(x * 30).bits;
    else
      put_bf16(d.q, i, x);
  }
  for (int i = 0; i < c.tokens * c.heads; ++i) d.weight.push_back(normal(rng) * 0.05f);
  const int table_width = (c.max_len + c.page_size - 1) / c.page_size;
  d.pages = static_cast<int64_t>(c.sequences) * table_width + 3;
  d.page_stride = key_page_bytes(c.keys, c.page_size, 128) + (c.odd_strides ? 4 : 0);
  d.keys.assign(static_cast<std::size_t>(d.pages * d.page_stride), 0xFF);
  for (int64_t page = 0; page < d.pages; ++page) {
    uint8_t* base = d.keys.data() + page * d.page_stride;
    for (int o = 0; o < c.page_size; ++o) {
      for (int e = 0; e < 128; ++e) {
        const float x = normal(rng) * (rng() % 4 == 0 ? 0.004f : 1.0f);  // e4m3 subnormals below 2^-6
        if (c.keys == KeyFormat::fp8) {
          base[o * 128 + e] = to_e4m3(x * 2).bits;
        } else {
          const bf16 value = to_bf16(x);
          std::memcpy(base + (o * 128 + e) * 2, &value, 2);
        }
      }
      const float scale = 0.01f * (1 + static_cast<float>(rng() % 100) * 0.01f);
      if (c.keys == KeyFormat::fp8) std::memcpy(base + c.page_size * 128 + o * 4, &scale, 4);
    }
  }
  std::vector<int32_t> ids(static_cast<std::size_t>(d.pages));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::shuffle(ids.begin(), ids.end(), rng);
  for (int i = 0; i < c.sequences * table_width; ++i) d.table.push_back(ids[static_cast<std::size_t>(i)]);
  for (int t = 0; t < c.tokens; ++t) {
    d.seq.push_back(c.tokens >= 4 * c.sequences ? t * c.sequences / c.tokens : t % c.sequences);
    const int choices[] = {c.max_len, c.topk, c.topk + 1, c.max_len - 1, 0, -3, c.max_len / 2, 17, c.max_len + 100};
    int len = c.tokens > 16 ? c.max_len - c.tokens + t + 1 : choices[t % 9];
    int start = 0;
    if (c.starts) {
      start = static_cast<int>(rng() % static_cast<unsigned>(c.max_len / 2)) - 3;
      len = std::min(len, c.max_len - start);
    }
    d.start.push_back(start);
    d.len.push_back(len);
  }
  if (c.damaged) {
    d.seq[1] = c.sequences;
    d.seq[2] = -1;
    d.table[3] = -1;
    d.table[5] = static_cast<int32_t>(d.pages);
    const float nan = std::nanf("");
    d.weight[static_cast<std::size_t>(3 * c.heads)] = nan;
    uint8_t* base = d.keys.data() + d.table[0] * d.page_stride;
    if (c.keys == KeyFormat::fp8) {
      base[5 * 128 + 77] = 0x7F;
      base[6 * 128 + 1] = 0xFF;
      std::memcpy(base + c.page_size * 128 + 7 * 4, &nan, 4);
    } else {
      base[(5 * 128 + 77) * 2] = base[(5 * 128 + 77) * 2 + 1] = 0xFF;
    }
    if (c.q == DType::bf16)
      put_bf16(d.q, 9, nan);
    else
      d.q[9] = 0x7F;
  }
  return d;
}

IndexSelectBuffers host_buffers(SelectData& d, const SelectCase& c, std::vector<int32_t>& out) {
  IndexSelectBuffers b;
  const int64_t width = static_cast<int64_t>(d.table.size()) / c.sequences;
  b.q = {d.q.data(), c.heads * 128, 128};
  b.weight = TensorView<const float>(d.weight.data(), {c.tokens, c.heads});
  b.keys = {reinterpret_cast<std::byte*>(d.keys.data()), d.pages, d.page_stride};
  b.page_table = TensorView<const int32_t>(d.table.data(), {c.sequences, width});
  b.seq = TensorView<const int32_t>(d.seq.data(), {c.tokens});
  if (c.starts) b.start = TensorView<const int32_t>(d.start.data(), {c.tokens});
  b.len = TensorView<const int32_t>(d.len.data(), {c.tokens});
  b.out = TensorView<int32_t>(out.data(), {c.tokens, c.topk});
  return b;
}

// Positions that the device chose for a token must beat those it left out, up to float error of both scores.
bool good_choice(const SelectCase& c, SelectData& d, const IndexSelectBuffers& b, int t, const int32_t* out,
                 int32_t out_len, std::string& why) {
  const oracle::IndexScores s = oracle::index_scores(d.p, b, t);
  const auto n = static_cast<int64_t>(s.score.size());
  const int64_t k = std::min<int64_t>(n, c.topk);
  if (out_len != k) {
    why = "out_len " + std::to_string(out_len) + " wants " + std::to_string(k);
    return false;
  }
  for (int64_t i = k; i < c.topk; ++i)
    if (out[i] != -1) {
      why = "padding";
      return false;
    }
  const std::vector<int64_t> want = oracle::top_positions(s.score, c.topk);
  // Fast: all the same.
  bool same = true;
  for (int64_t i = 0; i < k; ++i) {
    same = same && out[i] == oracle::output_entry(d.p, b, t, s.first + want[static_cast<std::size_t>(i)]);
  }
  if (same) return true;
  // Otherwise map back and allow swaps within float error.
  std::vector<char> chosen(static_cast<std::size_t>(n), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < n && at < k; ++i) {
    const int32_t entry = oracle::output_entry(d.p, b, t, s.first + i);
    if (entry == out[at] && entry != -1) chosen[static_cast<std::size_t>(i)] = 1, ++at;
  }
  if (at != k) {
    why = "not ascending positions of the sequence, stuck at " + std::to_string(at);
    return false;
  }
  double lowest_in = std::numeric_limits<double>::infinity(), highest_out = -lowest_in, yard = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = s.score[static_cast<std::size_t>(i)];
    if (std::isnan(x)) {
      if (chosen[static_cast<std::size_t>(i)]) {
        why = "chose NaN";
        return false;
      }
      continue;
    }
    if (chosen[static_cast<std::size_t>(i)])
      lowest_in = std::min(lowest_in, x);
    else
      highest_out = std::max(highest_out, x);
    yard = std::max(yard, s.magnitude[static_cast<std::size_t>(i)]);
  }
  if (highest_out - lowest_in <= yard * 2e-6) return true;
  why = "gap " + std::to_string(highest_out - lowest_in) + " yard " + std::to_string(yard);
  return false;
}

void check_select(const SelectCase& c, const DeviceInfo& device, Rng& rng) {
  SelectData d = make_case(c, rng);
  std::vector<int32_t> host_out(static_cast<std::size_t>(c.tokens * c.topk));
  const IndexSelectBuffers host = host_buffers(d, c, host_out);
  must(check(d.p, host), c.name);
  const Verdict v = cuda::admits_select(d.p, device);
  report(v.admitted(), std::string(c.name) + " refused");
  Device<uint8_t> q(d.q), keys(d.keys);
  Device<float> weight(d.weight);
  Device<int32_t> table(d.table), seq(d.seq), start(d.start), len(d.len), out(host_out.size()),
      out_len(static_cast<std::size_t>(c.tokens));
  const int64_t bytes = c.workspace != 0 ? c.workspace : v.launch.workspace_bytes;
  Device<std::byte> workspace(static_cast<std::size_t>(bytes));
  IndexSelectBuffers b = host;
  b.q.data = q.data;
  b.weight.data = weight.data;
  b.keys.data = reinterpret_cast<std::byte*>(keys.data);
  b.page_table.data = table.data;
  b.seq.data = seq.data;
  if (c.starts) b.start.data = start.data;
  b.len.data = len.data;
  b.out.data = out.data;
  b.out_len = TensorView<int32_t>(out_len.data, {c.tokens});
  std::vector<int32_t> first;
  for (int i = 0; i < 3; ++i) {
    must(cuda::run_select(d.p, b, device, {nullptr, workspace.data, bytes}), c.name);
    must(cudaDeviceSynchronize(), c.name);
    if (i == 0) first = out.get();
    report(out.get() == first, std::string(c.name) + " not repeatable");
  }
  const std::vector<int32_t> lens = out_len.get();
  std::vector<std::string> why(static_cast<std::size_t>(c.tokens));
  std::vector<std::thread> threads;
  const int workers = 14;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      for (int t = w; t < c.tokens; t += workers) {
        std::string reason;
        if (!good_choice(c, d, host, t, first.data() + static_cast<long>(t) * c.topk, lens[static_cast<std::size_t>(t)],
                         reason)) {
          why[static_cast<std::size_t>(t)] = reason;
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  for (int t = 0; t < c.tokens; ++t) {
    report(why[static_cast<std::size_t>(t)].empty(),
           std::string(c.name) + " token " + std::to_string(t) + ": " + why[static_cast<std::size_t>(t)]);
  }
}

// ---------------------------------------------------------------------------------------------- writer, gather, merge

void check_write(int tokens, int d_nope, int d_rope, int index_dim, int page_size, RowFormat rows, KeyFormat keys,
                 ScaleMode mode, DType type, bool odd, const DeviceInfo& device, Rng& rng) {
  CacheWriteProblem p{tokens, d_nope, d_rope, index_dim, page_size, rows, keys, mode, type};
  const int64_t width = d_nope + d_rope + index_dim + (odd ? 2 : 8);
  const auto element = static_cast<std::size_t>(bytes_of(type));
  std::vector<uint8_t> source(static_cast<std::size_t>(tokens * width) * element);
  for (int64_t i = 0; i < tokens * width; ++i) {
    float x = normal(rng) * std::exp(3 * normal(rng));
    const unsigned dice = rng() % 500;
    if (dice == 0) x = std::nanf("");
    if (dice == 1) x = -std::numeric_limits<float>::infinity();
    if (dice == 2) x = -std::nanf("");
    if (dice < 20 && dice > 10) x = -0.0f;
    if (i / width == 1) x = 0;
    if (i / width == 2) x *= 1e-30f;
    if (type == DType::f32)
      std::memcpy(source.data() + i * 4, &x, 4);
    else
      put_bf16(source, static_cast<std::size_t>(i), x);
  }
  const int64_t pages = (tokens + page_size - 1) / page_size + 2;
  const int64_t row = row_bytes(rows, d_nope, d_rope) + (odd ? 4 : 16);
  const int64_t page_bytes = row * page_size, key_bytes = key_page_bytes(keys, page_size, index_dim) + 4;
  std::vector<uint8_t> cache(static_cast<std::size_t>(pages * page_bytes), 0xA5),
      key_cache(static_cast<std::size_t>(pages * key_bytes), 0x5A);
  std::vector<int32_t> slots(static_cast<std::size_t>(tokens));
  for (auto& s : slots)
    s = static_cast<int32_t>(rng() % static_cast<unsigned>(pages * page_size + 4)) - 2;  // repeats too
  Device<uint8_t> d_source(source), d_cache(cache), d_keys(key_cache);
  Device<int32_t> d_slots(slots);
  const auto buffers = [&](uint8_t* s, int32_t* slot, uint8_t* c, uint8_t* k) {
    CacheWriteBuffers b;
    b.latent = s;
    b.rope = s + d_nope * static_cast<long>(element);
    b.key = s + (d_nope + d_rope) * static_cast<long>(element);
    b.latent_stride = b.rope_stride = b.key_stride = width;
    b.slots = TensorView<const int32_t>(slot, {tokens});
    b.cache = {reinterpret_cast<std::byte*>(c), pages, page_bytes, row};
    b.key_cache = {reinterpret_cast<std::byte*>(k), pages, key_bytes};
    return b;
  };
  const CacheWriteBuffers host = buffers(source.data(), slots.data(), cache.data(), key_cache.data());
  must(check(p, host), "write");
  must(cuda::run_write(p, buffers(d_source.data, d_slots.data, d_cache.data, d_keys.data), device, {}), "run_write");
  must(cudaDeviceSynchronize(), "write");
  oracle::cache_write(p, host);
  const std::string name = "write rows " + std::to_string(static_cast<int>(rows)) + " keys " +
                           std::to_string(static_cast<int>(keys)) + " mode " + std::to_string(static_cast<int>(mode)) +
                           " dims " + std::to_string(d_nope) + "+" + std::to_string(d_rope);
  report(d_cache.get() == cache, name + ": row bytes differ");
  report(d_keys.get() == key_cache, name + ": key bytes differ");

  RowGatherProblem g{tokens, d_nope, d_rope, page_size, rows};
  RowGatherBuffers gb;
  gb.cache = host.cache;
  gb.slots = host.slots;
  std::vector<float> out(static_cast<std::size_t>(tokens * (d_nope + d_rope)));
  Device<float> d_out(out.size());
  gb.out = TensorView<float>(out.data(), {tokens, d_nope + d_rope});
  const std::vector<float> want = oracle::row_gather(g, gb);
  gb.cache.data = reinterpret_cast<std::byte*>(d_cache.data);
  gb.slots.data = d_slots.data;
  gb.out.data = d_out.data;
  must(cuda::run_gather(g, gb, device, {}), "run_gather");
  must(cudaDeviceSynchronize(), "gather");
  const std::vector<float> got = d_out.get();
  bool same = true;
  for (std::size_t i = 0; i < want.size(); ++i)
    same = same && (want[i] == got[i] || (std::isnan(want[i]) && std::isnan(got[i])));
  report(same, name + ": gather differs");
}

void check_merge(int parts, int tokens, int heads, int d_v, DType type, bool sinks, const DeviceInfo& device,
                 Rng& rng) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> part_out(static_cast<std::size_t>(parts * tokens * heads * d_v)), lse, sink;
  for (auto& x : part_out) x = normal(rng);
  for (int i = 0; i < parts * tokens * heads; ++i) {
    const bool empty = rng() % 3 == 0 || i % (tokens * heads) == 0;
    lse.push_back(empty ? -inf : 20 * normal(rng));
    if (empty)
      for (int d = 0; d < d_v; ++d) part_out[static_cast<std::size_t>(i * d_v + d)] = std::nanf("");
  }
  for (int h = 0; h < heads; ++h) sink.push_back(h % 4 == 0 ? inf : h % 4 == 1 ? -inf : normal(rng));
  MergeProblem p{parts, tokens, heads, d_v, type};
  Device<float> d_part(part_out), d_lse(lse), d_sink(sink), d_out_lse(static_cast<std::size_t>(tokens * heads));
  Device<uint8_t> d_out(static_cast<std::size_t>(tokens * heads * d_v * bytes_of(type)));
  MergeBuffers b;
  b.part_out = TensorView<const float>(part_out.data(), {parts, tokens, heads, d_v});
  b.part_lse = TensorView<const float>(lse.data(), {parts, tokens, heads});
  if (sinks) b.sink = TensorView<const float>(sink.data(), {heads});
  b.out = {d_out.data, heads * d_v, d_v};
  b.lse = TensorView<float>(d_out_lse.data, {tokens, heads});
  must(check(p, b), "merge");
  const oracle::MergeResult want = oracle::merge(p, b);
  b.part_out.data = d_part.data;
  b.part_lse.data = d_lse.data;
  if (sinks) b.sink.data = d_sink.data;
  must(cuda::run_merge(p, b, device, {}), "run_merge");
  must(cudaDeviceSynchronize(), "merge");
  const auto out = d_out.get();
  const auto got_lse = d_out_lse.get();
  double worst = 0, worst_lse = 0;
  for (std::size_t i = 0; i < want.out.size(); ++i) {
    const double x = oracle::element(out.data(), type, static_cast<int64_t>(i));
    const double tolerance = (type == DType::f32 ? 2e-6 : 0x1p-8) * (1 + std::abs(want.out[i]));
    worst = std::max(worst, std::isnan(x) ? 1e9 : std::abs(x - want.out[i]) / tolerance);
  }
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    if (want.lse[i] == -inf && got_lse[i] == -inf) continue;
    worst_lse = std::max(worst_lse, std::abs(got_lse[i] - want.lse[i]) / (1e-5 + 1e-6 * std::abs(want.lse[i])));
  }
  report(worst <= 1 && worst_lse <= 1,
         "merge d_v " + std::to_string(d_v) + " worst " + std::to_string(worst) + " lse " + std::to_string(worst_lse));
}

// ---------------------------------------------------------------------------------------------- times

float median_us(const std::function<void(cudaStream_t)>& work, int launches = 20) {
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  work(stream);
  must(cudaStreamSynchronize(stream), "warm up");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) work(stream);
  must(cudaStreamEndCapture(stream, &graph), "capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> us;
  for (int i = 0; i < 17; ++i) {
    cudaEventRecord(begin, stream);
    must(cudaGraphLaunch(exec, stream), "graph");
    cudaEventRecord(end, stream);
    must(cudaEventSynchronize(end), "graph");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 2) us.push_back(ms * 1000 / static_cast<float>(launches));
  }
  std::sort(us.begin(), us.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return us[us.size() / 2];
}

// Cheap random bytes on the device: finite e4m3 codes or bf16 values near one.
__global__ void fill(uint8_t* data, int64_t bytes, uint32_t seed, bool bf16_values) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < bytes / 4; i += gridDim.x * 256) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    reinterpret_cast<uint32_t*>(data)[i] = bf16_values ? (x & 0x807F807Fu) | 0x3F003F00u | (x & 0x00800080u)
                                                       : (x & 0x8F8F8F8Fu) | 0x20202020u | ((x >> 3) & 0x10101010u);
  }
}
__global__ void fill_scores(float* data, int64_t n, uint32_t seed) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      uint32_t x = static_cast<uint32_t>(i * 4 + j) * 2654435761u + seed;
      x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
      sum += static_cast<float>(x) * 0x1p-32f;
    }
    data[i] = (sum - 2) * 1.7f;
  }
}

void bench_select(const char* name, int tokens, int sequences, int heads, int len, KeyFormat keys, DType q,
                  int64_t workspace_limit, const DeviceInfo& device, int launches = 20) {
  IndexSelectProblem p{tokens, heads, 128, 2048, 64, len, keys, q, true};
  const int table_width = len / 64;
  const int64_t pages = static_cast<int64_t>(sequences) * table_width, page = key_page_bytes(keys, 64, 128);
  Device<uint8_t> d_q(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads * 128 * bytes_of(q))),
      d_keys(static_cast<std::size_t>(pages * page));
  fill<<<2048, 256>>>(d_q.data, static_cast<int64_t>(d_q.size), 1, q == DType::bf16);
  fill<<<2048, 256>>>(d_keys.data, static_cast<int64_t>(d_keys.size), 2, keys == KeyFormat::bf16);
  std::vector<float> weight(static_cast<std::size_t>(tokens * heads));
  Rng rng(5);
  for (auto& w : weight) w = normal(rng) * 0.05f;
  if (keys == KeyFormat::fp8) {
    std::vector<float> scales(64, 0.01f);
    for (int i = 0; i < 64; ++i) scales[static_cast<std::size_t>(i)] = 0.01f + 0.0001f * static_cast<float>(i);
    Device<float> d_scales(scales);

    for (int64_t i = 0; i < pages; ++i)
      cudaMemcpyAsync(d_keys.data + i * page + 64 * 128, d_scales.data, 256, cudaMemcpyDeviceToDevice);
    must(cudaDeviceSynchronize(), "scales");
  }
  std::vector<int32_t> table(static_cast<std::size_t>(pages)), seq, lens;
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), rng);
  for (int t = 0; t < tokens; ++t) {
    seq.push_back(t * sequences / tokens);
    lens.push_back(len);
  }
  Device<float> d_weight(weight);
  Device<int32_t> d_table(table), d_seq(seq), d_len(lens), d_out(static_cast<std::size_t>(tokens) * 2048);
  const Verdict v = cuda::admits_select(p, device);
  int64_t bytes = v.launch.workspace_bytes;
  if (workspace_limit > 0) bytes = std::min(bytes, workspace_limit);
  Device<std::byte> workspace(static_cast<std::size_t>(bytes));
  IndexSelectBuffers b;
  b.q = {d_q.data, heads * 128, 128};
  b.weight = TensorView<const float>(d_weight.data, {tokens, heads});
  b.keys = {reinterpret_cast<std::byte*>(d_keys.data), pages, page};
  b.page_table = TensorView<const int32_t>(d_table.data, {sequences, table_width});
  b.seq = TensorView<const int32_t>(d_seq.data, {tokens});
  b.len = TensorView<const int32_t>(d_len.data, {tokens});
  b.out = TensorView<int32_t>(d_out.data, {tokens, 2048});
  const float us = median_us(
      [&](cudaStream_t stream) {
        must(cuda::run_select(p, b, device, {stream, workspace.data, bytes}), name);
      },
      launches);
  const double gb = static_cast<double>(pages * page) / us * 1e-3;
  const double tflops = 2.0 * 128 * heads * tokens * static_cast<double>(len) / us * 1e-6;
  std::printf("%-34s %6d x %7d heads %2d ws %4lld MB  %9.1f us  %7.0f GB/s keys  %6.1f TFLOP/s\n", name, tokens, len,
              heads, static_cast<long long>(bytes >> 20), us, gb, tflops);
}

void bench_topk(int rows, int width, const DeviceInfo& device) {
  Device<float> scores(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width));
  fill_scores<<<4096, 256>>>(scores.data, static_cast<int64_t>(scores.size), 3);
  Device<int32_t> out(static_cast<std::size_t>(rows) * 2048);
  const int64_t bytes = cuda::topk_workspace_bytes(rows, width, 2048);
  Device<std::byte> workspace(static_cast<std::size_t>(bytes));
  const cuda::TopkRows r{scores.data, width, rows, width, nullptr, 2048, out.data, 2048, nullptr};
  const float us = median_us([&](cudaStream_t stream) {
    must(cuda::run_topk(r, device, {stream, workspace.data, bytes}), "topk");
  });
  std::printf("topk %5d x %7d  %8.1f us\n", rows, width, us);
}

int run_checks(unsigned seed, bool small) {
  const DeviceInfo device = device_info();
  Rng rng(seed);
  const int widths[] = {1, 5, 2047, 2048, 2049, 4097, 32767, 32768, 32769, 70001, 131072, 400000, 1 << 20};
  const int ks[] = {1, 5, 64, 2048, 3000, 4096};
  int cases = 0;
  for (int width : widths) {
    if (small && width > 40000) continue;
    for (int k : ks) {
      for (int pattern = 0; pattern < static_cast<int>(Pattern::count); ++pattern) {
        if (width >= 131072 && k != 2048 && (pattern + k) % (width > 200000 ? 5 : 2) != 0) continue;
        if (small && (pattern + k + width) % 7 != 0) continue;
        const int64_t pitch = pattern % 3 == 1 ? width + 1 : (width + 3) / 4 * 4;
        check_topk(width, k, static_cast<Pattern>(pattern), pitch, device, rng);
        ++cases;
      }
    }
  }
  std::printf("topk: %d cases, %d failures\n", cases, failures);
  const SelectCase selects[] = {
      {"fp8 bf16q h32 p64", 9, 9, 32, 256, 64, 3001},
      {"fp8 e4m3q h64 p64", 9, 3, 64, 512, 64, 2500, KeyFormat::fp8, DType::e4m3},
      {"fp8 h8 p1", 5, 5, 8, 64, 1, 700, KeyFormat::fp8, DType::e4m3, true, true},
      {"fp8 h12 p61 odd", 5, 2, 12, 100, 61, 1500, KeyFormat::fp8, DType::bf16, false, true, true},
      {"fp8 h1 p16", 5, 5, 1, 7, 16, 900, KeyFormat::fp8, DType::bf16, true, true},
      {"bf16 h32 p64", 9, 9, 32, 256, 64, 3001, KeyFormat::bf16},
      {"bf16 h40 p61", 5, 5, 40, 128, 61, 1501, KeyFormat::bf16, DType::e4m3, true, true},
      {"bf16 h64 p16", 5, 5, 64, 128, 16, 1501, KeyFormat::bf16},
      {"prefill fp8 h32", 40, 2, 32, 256, 64, 2000},
      {"prefill fp8 h64 start", 21, 1, 64, 300, 64, 1800, KeyFormat::fp8, DType::e4m3, true, true},
      {"prefill fp8 h8 p61", 37, 3, 8, 200, 61, 1800, KeyFormat::fp8, DType::bf16, true, true, true},
      {"prefill fp8 h16", 33, 1, 16, 200, 64, 1800},
      {"prefill bf16 h32", 40, 2, 32, 256, 64, 2000, KeyFormat::bf16},
      {"prefill bf16 h64 p61", 19, 1, 64, 256, 61, 1300, KeyFormat::bf16, DType::bf16, false, true},
      {"chunks fp8", 20, 20, 32, 256, 64, 2000, KeyFormat::fp8, DType::bf16, true, false, false, 40000},
      {"chunks prefill", 50, 1, 32, 256, 64, 2000, KeyFormat::fp8, DType::bf16, true, false, false, 17 * 8100},
      {"damaged fp8", 9, 2, 32, 128, 64, 1500, KeyFormat::fp8, DType::bf16, false, false, false, 0, true},
      {"damaged fp8 prefill", 30, 2, 32, 128, 64, 1500, KeyFormat::fp8, DType::bf16, false, false, false, 0, true},
      {"damaged bf16", 9, 2, 16, 128, 64, 1500, KeyFormat::bf16, DType::bf16, false, false, false, 0, true},
      {"long fp8", 2, 2, 8, 2048, 64, 70000, KeyFormat::fp8, DType::bf16},
      {"k 2048", 6, 6, 32, 2048, 64, 6000},
  };
  for (const SelectCase& c : selects) {
    if (small && c.max_len > 10000) continue;
    check_select(c, device, rng);
  }
  std::printf("select: %zu cases, %d failures\n", std::size(selects), failures);
  for (RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8}) {
    for (KeyFormat keys : {KeyFormat::bf16, KeyFormat::fp8}) {
      for (ScaleMode mode : {ScaleMode::plain, ScaleMode::power_of_two}) {
        for (DType type : {DType::bf16, DType::f32}) {
          check_write(37, 512, 64, 128, 64, rows, keys, mode, type, false, device, rng);
          check_write(19, 96, 34, 64, 16, rows, keys, mode, type, true, device, rng);
          check_write(5, 512, 0, 128, 1, rows, keys, mode, type, false, device, rng);
        }
      }
    }
  }
  check_write(small ? 100 : 5000, 512, 64, 128, 64, RowFormat::v32_fp8, KeyFormat::fp8, ScaleMode::plain, DType::bf16,
              false, device, rng);
  for (DType type : {DType::f32, DType::bf16}) {
    check_merge(1, 3, 8, 512, type, false, device, rng);
    check_merge(7, 5, 16, 512, type, true, device, rng);
    check_merge(3, 4, 5, 96, type, true, device, rng);
    check_merge(2, 4, 3, 33, type, true, device, rng);
    check_merge(4, 4, 3, 1030, type, false, device, rng);
  }
  std::printf("%s: %d failures\n", failures == 0 ? "PASS" : "FAIL", failures);
  return failures != 0;
}

void run_bench() {
  const DeviceInfo device = device_info();
  for (auto [rows, width] :
       {std::pair{4, 131072}, {64, 32768}, {64, 131072}, {1, 131072}, {256, 16384}, {1024, 32768}}) {
    bench_topk(rows, width, device);
  }
  const auto fp8 = KeyFormat::fp8;
  bench_select("decode fp8 e4m3 q", 64, 64, 32, 32768, fp8, DType::e4m3, 0, device);
  bench_select("decode fp8 bf16 q", 64, 64, 32, 32768, fp8, DType::bf16, 0, device);
  bench_select("decode fp8 e4m3 q", 64, 64, 64, 32768, fp8, DType::e4m3, 0, device);
  bench_select("decode fp8 e4m3 q", 64, 64, 8, 32768, fp8, DType::e4m3, 0, device);
  bench_select("decode bf16", 64, 64, 32, 32768, KeyFormat::bf16, DType::bf16, 0, device);
  bench_select("decode fp8 e4m3 q", 4, 4, 32, 131072, fp8, DType::e4m3, 0, device);
  bench_select("decode fp8 e4m3 q", 4, 4, 64, 131072, fp8, DType::e4m3, 0, device);
  bench_select("decode fp8 e4m3 q", 1, 1, 32, 131072, fp8, DType::e4m3, 0, device);
  bench_select("decode fp8, 2 rows a sequence", 128, 64, 32, 32768, fp8, DType::e4m3, 0, device, 5);
  for (int64_t mb : {256, 64, 32}) {
    bench_select("prefill fp8 e4m3 q", 1024, 1, 32, 32768, fp8, DType::e4m3, mb << 20, device, 5);
  }
  bench_select("prefill fp8 e4m3 q", 1024, 1, 64, 32768, fp8, DType::e4m3, 0, device, 5);
  bench_select("prefill bf16", 1024, 1, 32, 32768, KeyFormat::bf16, DType::bf16, 0, device, 5);
  bench_select("decode kernel on prefill", 1024, 257, 32, 32768, fp8, DType::e4m3, 0, device, 2);
}

// One launch of each shape, for a profiler.
void run_once() {
  const DeviceInfo device = device_info();
  bench_select("decode", 64, 64, 32, 32768, KeyFormat::fp8, DType::e4m3, 0, device, 1);
  bench_select("prefill", 1024, 1, 32, 32768, KeyFormat::fp8, DType::e4m3, 0, device, 1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  must(cuda::init_select(device_info()), "init");
  if (mode == "bench") {
    run_bench();
    return 0;
  }
  if (mode == "once") {
    run_once();
    return 0;
  }
  return run_checks(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1, mode == "small");
}
