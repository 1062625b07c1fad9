// SPDX-License-Identifier: Apache-2.0
// The commands of winnow-kernels. Each returns the exit status: 0 fine, 1 something is wrong, 2 wrong use,
// 3 a launch hung (watchdog.hpp), 4 no CUDA device.
#pragma once

#include <span>
#include <string>

#include "contract/device_info.hpp"
#include "core/status.hpp"

namespace winnow::kernels {

inline constexpr int kExitOk = 0, kExitWrong = 1, kExitUse = 2, kExitNoDevice = 4;

[[nodiscard]] int run_conformance_command(std::span<const std::string> args);
[[nodiscard]] int run_bench_command(std::span<const std::string> args);
[[nodiscard]] int run_soak_command(std::span<const std::string> args);
[[nodiscard]] int run_info_command(std::span<const std::string> args);

[[nodiscard]] std::string conformance_help();
[[nodiscard]] std::string bench_help();
[[nodiscard]] std::string soak_help();
[[nodiscard]] std::string info_help();

// The first device, initialised through the C ABI; not_found with the driver's words when there is none.
[[nodiscard]] Result<DeviceInfo> open_device();

// The whole command line, set by main: benchmarks print it.
void set_command_line(int argc, char** argv);
[[nodiscard]] const std::string& command_line();

}  // namespace winnow::kernels
