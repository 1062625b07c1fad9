// SPDX-License-Identifier: Apache-2.0
// winnow-kernels info: the device, the architectures that this build carries, and the kernels with their launches.
#include <cuda_runtime.h>

#include <array>
#include <cstdio>

#include "backends/cuda/mla_admit.hpp"
#include "indexer/cuda/select_admit.hpp"
#include "kernels/commands.hpp"
#include "kernels/options.hpp"
#include "kernels/shared_memory.hpp"

#ifndef WINNOW_CUDA_ARCHITECTURES
#error "the build sets WINNOW_CUDA_ARCHITECTURES"
#endif

namespace winnow::kernels {
namespace {

constexpr std::array kOptions = {
    OptionHelp{"sm", "N", "show launches for this compute capability times ten"},
    OptionHelp{"shared", "", "CSV of every kernel's threads and dynamic shared memory, for all architectures"},
};

void print_row(const char* operation, const std::string& shape, const Verdict& verdict) {
  std::printf("  %-13s%-34s", operation, shape.c_str());
  if (!verdict.admitted()) {
    for (const Refusal& r : verdict.refusals) {
      std::printf(" refused: %s wants %s, has %s", r.what.c_str(), r.wanted.c_str(), r.found.c_str());
    }
    std::printf("\n");
    return;
  }
  const LaunchFacts& l = verdict.launch;
  std::printf(" %2d heads x %3d rows, %d stages, %2d splits, %6lld B shared, %9lld B workspace  %s\n",
              l.heads_per_block, l.rows_per_tile, l.stages, l.splits, static_cast<long long>(l.shared_bytes),
              static_cast<long long>(l.workspace_bytes), l.note.c_str());
}

void print_mla(const DeviceInfo& device) {
  for (const RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8}) {
    for (const int heads : {8, 16, 32, 64, 128}) {
      for (const int tokens : {1, 64, 4096}) {
        const SparseMlaProblem problem{tokens, heads, 2048, 64, 512, 64, 512, 1.0f, rows};
        print_row("sparse_mla", concat(name_of(rows), " heads ", heads, " tokens ", tokens),
                  cuda::admits_mla(problem, device));
      }
    }
  }
}

void print_select(const DeviceInfo& device) {
  for (const KeyFormat keys : {KeyFormat::bf16, KeyFormat::fp8}) {
    for (const int tokens : {1, 64, 1024}) {
      const IndexSelectProblem problem{tokens, 32, 128, 2048, 64, 131072, keys, DType::bf16, true};
      print_row("index_select", concat(name_of(keys), " heads 32 tokens ", tokens, " of 131072"),
                cuda::admits_select(problem, device));
    }
  }
}

}  // namespace

std::string info_help() {
  return concat("winnow-kernels info: the device, the build and what each kernel would use\n\n",
                options_help(kOptions));
}

int run_info_command(std::span<const std::string> args) {
  Result<Options> options = Options::parse(args, kOptions);
  if (!options.ok()) {
    std::fprintf(stderr, "info: %s\n", options.status().message().c_str());
    return kExitUse;
  }
  const int64_t sm = options->number("sm", 0, 50, 999);
  if (!options->failure().ok()) {
    std::fprintf(stderr, "info: %s\n", options->failure().message().c_str());
    return kExitUse;
  }
  if (options->has("shared")) {
    std::printf("%s", shared_memory_table().c_str());
    return kExitOk;
  }
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  std::printf("build    architectures %s, CUDA runtime %d, driver %d\n", WINNOW_CUDA_ARCHITECTURES, runtime, driver);
  Result<DeviceInfo> device = sm == 0 ? open_device() : Result<DeviceInfo>(described_device(static_cast<int>(sm)));
  if (!device.ok()) {
    std::printf("device   %s\n         (launches below are those of sm_80; --sm N asks for another)\n",
                device.status().message().c_str());
    device = described_device(80);
  }
  std::printf("device   %s, sm_%d, %d SMs, %.1f GiB, %lld B of shared memory per CTA, %lld per SM\n",
              device->name.c_str(), device->sm, device->units, static_cast<double>(device->memory_bytes) / (1 << 30),
              static_cast<long long>(device->smem_per_block), static_cast<long long>(device->smem_per_sm));
  std::printf("kernels\n");
  print_mla(*device);
  print_select(*device);
  return kExitOk;
}

}  // namespace winnow::kernels
