// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_facts.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/cuda_status.hpp"

namespace winnow::kernels {
namespace {

// Dense bf16 FLOP per clock and SM with fp32 accumulation (whitepapers of the architectures; GeForce parts of 8.6, 8.9
// and 12.0 run at half of what their professional sisters do, which the driver does not tell: the lower one counts).
double flop_per_clock(int sm) {
  switch (sm / 10) {
    case 8: return sm == 80 ? 2048 : sm == 87 ? 1024 : 512;
    case 9: return 4096;
    case 10:
    case 11: return 8192;
    default: return 512;
  }
}

Status read_attribute(int& value, cudaDeviceAttr attribute, int device, const char* name) {
  return cuda_status(cudaDeviceGetAttribute(&value, attribute, device), name);
}

constexpr int64_t kLeastSharedKb = 48;    // what a block has without asking
constexpr int64_t kReservedSharedKb = 1;  // what the driver keeps of an SM for each block

// The limit of WINNOW_SHARED_KB on what the device has.
Status limit_shared_memory(DeviceInfo& info) {
  const char* text = std::getenv(kSharedLimitVariable);
  if (text == nullptr || *text == '\0') return {};
  const std::string_view given = text;
  const int64_t most = info.smem_per_block / 1024;
  int64_t kb = 0;
  const auto [end, code] = std::from_chars(given.data(), given.data() + given.size(), kb);
  if (code != std::errc() || end != given.data() + given.size() || kb < kLeastSharedKb || kb > most) {
    return error(StatusCode::invalid_argument, kSharedLimitVariable, " is '", given, "', wants a whole number from ",
                 kLeastSharedKb, " to ", most, ", the KB of shared memory that a block of ", info.name, " can have");
  }
  info.smem_per_block = kb * 1024;
  info.smem_per_sm = std::min(info.smem_per_sm, (kb + kReservedSharedKb) * 1024);
  info.name += concat(", as if with ", kb, " KB of shared memory");  // so that nothing changes silently
  return {};
}

}  // namespace

Result<DeviceInfo> device_facts(int device) {
  cudaDeviceProp properties{};
  WINNOW_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  int memory_khz = 0, core_khz = 0;
  WINNOW_TRY(read_attribute(memory_khz, cudaDevAttrMemoryClockRate, device, "memory clock"));
  WINNOW_TRY(read_attribute(core_khz, cudaDevAttrClockRate, device, "core clock"));
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.units = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.bandwidth = 2.0 * memory_khz * 1e3 * properties.memoryBusWidth / 8;
  info.matrix_flops = flop_per_clock(info.sm) * info.units * core_khz * 1e3;
  info.smem_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.smem_per_sm = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  WINNOW_TRY(limit_shared_memory(info));
  return info;
}

}  // namespace winnow::kernels
