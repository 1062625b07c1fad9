// SPDX-License-Identifier: Apache-2.0
// Threads and dynamic shared memory of each kernel's launch, by compute capability, from the numbers that the launchers
// read. No device is asked: scripts/kernel_resources.py puts them beside what ptxas reports.
#pragma once

#include <string>

#include "contract/device_info.hpp"

namespace winnow::kernels {

// A typical part of a compute capability, for a machine without the device.
[[nodiscard]] DeviceInfo described_device(int sm);

// CSV: kernel,sm,threads,dynamic_shared_bytes. Kernels that the plans never choose on an architecture have 0 bytes
// there.
[[nodiscard]] std::string shared_memory_table();

}  // namespace winnow::kernels
