// SPDX-License-Identifier: Apache-2.0
// winnow-kernels: conformance, benchmarks and soaks of the CUDA kernel library, through its C ABI.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/cuda_status.hpp"
#include "kernels/abi_calls.hpp"
#include "kernels/commands.hpp"
#include "winnow/winnow.h"

namespace winnow::kernels {
namespace {

struct Command {
  const char* name;
  const char* text;
  int (*run)(std::span<const std::string>);
  std::string (*help)();
};

constexpr Command kCommands[] = {
    {"conformance", "every case of cases/ against the float64 oracle: right, repeatable, within bounds",
     run_conformance_command, conformance_help},
    {"bench", "time, GB/s and TFLOP/s beside this device's own copy and matmul rate", run_bench_command, bench_help},
    {"soak", "random shapes and lists for minutes, watched for hangs", run_soak_command, soak_help},
    {"info", "this device, the architectures in this build, and what each kernel uses", run_info_command, info_help},
};

void print_help() {
  std::printf(
      "winnow-kernels %s: the CUDA kernel library of Winnow, checked and measured\n\n"
      "usage: winnow-kernels COMMAND [--option value ...]     winnow-kernels COMMAND --help\n\n"
      "commands\n",
      winnow_version());
  for (const Command& command : kCommands) std::printf("  %-14s%s\n", command.name, command.text);
  std::printf(
      "\nFirst use on a new GPU\n"
      "  winnow-kernels info                    is this GPU in the build?\n"
      "  winnow-kernels conformance             does every kernel compute what the contract says?\n"
      "  winnow-kernels bench --suite peers     how fast, against published numbers of others\n"
      "  winnow-kernels soak --minutes 10       does anything hang under load?\n\n"
      "environment\n"
      "  WINNOW_SHARED_KB=99    run the tiles of cards with 99 KB of shared memory per block (SM86, SM89, SM120)\n"
      "                         on a larger one; 163 for those of SM80\n\n"
      "exit status: 0 fine, 1 a wrong result or a missed demand, 2 wrong use, 3 a launch hung, 4 no CUDA device\n");
}

int run(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help();
    return args.empty() ? kExitUse : kExitOk;
  }
  if (args[0] == "--version") {
    std::printf("winnow-kernels %s\n", winnow_version());
    return kExitOk;
  }
  for (const Command& command : kCommands) {
    if (args[0] != command.name) continue;
    const std::span<const std::string> rest(args.begin() + 1, args.end());
    for (const std::string& arg : rest) {
      if (arg != "--help" && arg != "-h") continue;
      std::printf("%s", command.help().c_str());
      return kExitOk;
    }
    return command.run(rest);
  }
  std::fprintf(stderr, "winnow-kernels: there is no command '%s'; winnow-kernels --help lists them\n", args[0].c_str());
  return kExitUse;
}

std::string& stored_command_line() {
  static std::string line;
  return line;
}

}  // namespace

void set_command_line(int argc, char** argv) {
  std::string& line = stored_command_line();
  line = "winnow-kernels";
  for (int i = 1; i < argc; ++i) line += concat(" ", argv[i]);
}

const std::string& command_line() { return stored_command_line(); }

Result<DeviceInfo> open_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    return error(StatusCode::not_found,
                 "no CUDA device: ", code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
  }
  winnow_device_info info{};
  info.struct_size = sizeof info;
  WINNOW_TRY(abi_status(winnow_init_device(0, &info)));
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = info.name;
  device.sm = info.sm;
  device.units = info.units;
  device.memory_bytes = info.memory_bytes;
  device.bandwidth = info.bandwidth;
  device.matrix_flops = info.matrix_flops;
  device.smem_per_block = info.smem_per_block;
  device.smem_per_sm = info.smem_per_sm;
  return device;
}

}  // namespace winnow::kernels

int main(int argc, char** argv) {
  try {
    winnow::kernels::set_command_line(argc, argv);
    return winnow::kernels::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {  // the standard library's, out of memory in the main
    std::fprintf(stderr, "winnow-kernels: %s\n", e.what());
    return winnow::kernels::kExitWrong;
  }
}
