// SPDX-License-Identifier: Apache-2.0
// Facts about this machine. Linux only: /proc, /sys, sched_getaffinity. What cannot be read falls back to a stated
// assumption, never to an error: a plan for this machine must always be possible.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "core/threads.hpp"
#include "select/select.hpp"

namespace winnow {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "this CPU";
}

// Physical cores among the allowed CPUs: hyper-threads of one core share its arithmetic, so they count once.
int32_t allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return std::max<int32_t>(1, static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string siblings =
        first_line(concat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    cores.insert(siblings.empty() ? concat("cpu", cpu) : siblings);
  }
  return std::max<int32_t>(1, static_cast<int32_t>(cores.size()));
}

int64_t parse_bytes(const std::string& text) {
  if (text.empty() || text.size() > 18) return 0;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return 0;
    value = value * 10 + (c - '0');
  }
  return value;
}

// Physical memory, or less when the control group (a container) allows less.
int64_t allowed_memory() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const int64_t limit = parse_bytes(first_line(path));
    if (limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

// Bytes per second that all threads together read from a buffer beyond most last-level caches. 64 MB take about 20 ms
// with first touch; on machines whose shared cache is larger the figure is optimistic, and a description
// (cpu:64 cores, 512 GB, 400 GB/s) is the way to correct it.
double measured_bandwidth() {
  constexpr int64_t kWords = int64_t{64} << 17;  // 64 MB of uint64
  constexpr int64_t kGrain = int64_t{1} << 17;   // 1 MB
  const std::unique_ptr<uint64_t[]> words(new (std::nothrow) uint64_t[kWords]);
  if (words == nullptr) return 10e9;  // assumption: one channel of slow memory
  parallel_for(kWords, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) words[i] = static_cast<uint64_t>(i);
  });
  std::vector<uint64_t> sums(static_cast<std::size_t>(threads()) * 8);  // a cache line each
  const auto start = Clock::now();
  parallel_for(kWords, kGrain, [&](int64_t begin, int64_t end, int worker) {
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += words[i];
    sums[static_cast<std::size_t>(worker) * 8] += sum;
  });
  const double seconds = seconds_since(start);
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  volatile uint64_t keep = total;  // the reads must happen
  (void)keep;
  return seconds > 0 ? static_cast<double>(kWords) * sizeof(uint64_t) / seconds : 10e9;
}

// Cycles per second, from a chain of dependent additions, one cycle each on every x86-64 core.
double measured_clock() {
  constexpr int64_t kSteps = 1 << 21;
  uint64_t value = 1;
  const auto start = Clock::now();
  for (int64_t i = 0; i < kSteps / 8; ++i) {
#if defined(__x86_64__)
    asm volatile(
        "add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n"
        "add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n"
        : "+r"(value));
#else
    for (int k = 0; k < 8; ++k) asm volatile("" : "+r"(value) : : "memory"), value += value;
#endif
  }
  const double seconds = seconds_since(start);
  return seconds > 0 ? static_cast<double>(kSteps) / seconds : 2e9;
}

// fp32 multiply-adds of one core and cycle, times two: two ports of the widest vectors (cpuid). Server cores with one
// wide port reach half of it.
double flops_per_cycle() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
  return 8;  // SSE: four lanes, one multiply and one add
#else
  return 16;
#endif
}

DeviceInfo read_host() {
  DeviceInfo host;
  host.kind = DeviceKind::cpu;
  host.name = cpu_name();
  host.units = allowed_cores();
  host.memory_bytes = allowed_memory();
  host.bandwidth = measured_bandwidth();
  host.matrix_flops = measured_clock() * flops_per_cycle() * host.units;
  return host;
}

}  // namespace

DeviceInfo host_cpu() {
  static const DeviceInfo host = read_host();
  return host;
}

}  // namespace winnow
