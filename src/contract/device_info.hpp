// SPDX-License-Identifier: Apache-2.0
// What a backend may know about a device when it decides: facts, read from the driver or described by a person.
#pragma once

#include <cstdint>
#include <string>

namespace winnow {

enum class DeviceKind : uint8_t { cpu, cuda };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;            // "NVIDIA RTX PRO 6000 Blackwell", "AMD EPYC 9654"
  int32_t count = 1;           // devices of this kind that share the work
  int32_t sm = 0;              // compute capability times ten: 80, 86, 89, 90, 100, 120; 0 on a CPU
  int32_t units = 0;           // streaming multiprocessors, or CPU cores, of one device
  int64_t memory_bytes = 0;    // of one device
  double bandwidth = 0;        // bytes per second of one device
  double matrix_flops = 0;     // dense bf16 FLOP per second with fp32 accumulation (CPU: fp32 FMA)
  int64_t smem_per_block = 0;  // bytes of shared memory that one block may ask for; 0 on a CPU
  int64_t smem_per_sm = 0;     // bytes of shared memory of one SM; 0 on a CPU
  bool described = false;      // true: written by hand, not present in this machine
};

}  // namespace winnow
