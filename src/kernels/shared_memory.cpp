// SPDX-License-Identifier: Apache-2.0
#include "kernels/shared_memory.hpp"

#include <algorithm>
#include <map>

#include "backends/cuda/cache_write_admit.hpp"
#include "backends/cuda/mla_admit.hpp"
#include "backends/cuda/mla_launch.hpp"
#include "core/concat.hpp"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::kernels {
namespace {

struct LaunchSize {
  int threads = 0;
  int64_t shared = 0;
};

using Table = std::map<std::string, LaunchSize>;

// mla_bf16_h8, mla_fp8_h64_overlapped: the kernel that a tile of the list is compiled into.
std::string kernel_of(const cuda::MlaTile& tile) {
  if (cuda::is_wgmma(tile)) return "mla_bf16_h64_wgmma";
  return concat("mla_", tile.rows == RowFormat::bf16 ? "bf16" : "fp8", "_h", cuda::heads_of(tile),
                tile.spread       ? "_spread"
                : tile.overlapped ? "_overlapped"
                                  : "");
}

void add_mla(Table& table, const DeviceInfo& device) {
  for (const cuda::MlaTile& tile : cuda::kMlaTiles) {
    if (cuda::is_wgmma(tile) && device.sm != 90) continue;
    LaunchSize& size = table[kernel_of(tile)];
    size.threads = std::max(size.threads, cuda::threads_of(tile));
  }
  for (const RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8}) {
    for (int heads = 1; heads <= 128; ++heads) {
      for (const auto& [tokens, topk] : {std::pair{1, 2048}, {1, 4096}, {64, 2048}, {4096, 2048}}) {
        const SparseMlaProblem problem{tokens, heads, topk, 64, 512, 64, 512, 1.0f, rows};
        const cuda::MlaPlan plan = cuda::plan_mla(problem, device);
        if (plan.tile == nullptr) continue;
        LaunchSize& size = table[kernel_of(*plan.tile)];
        size.shared = std::max(size.shared, plan.shared_bytes);
      }
    }
  }
  table["mla_merge<"] = {cuda::kMergeThreads, 0};
  if (device.sm == 90) table["mla_merge_rows"] = {cuda::kMergeThreads, 0};
}

void add_select(Table& table) {
  for (const char* keys : {"Bf16Keys", "Fp8Keys"}) {
    for (const int tiles : {1, 2, 4, 8}) {
      table[concat("score_decode<", keys, ",", tiles)] = {cuda::DecodeShape::kWarps * 32,
                                                          cuda::DecodeShape::shared_bytes(tiles)};
      table[concat("score_prefill<", keys, ",", tiles)] = {cuda::PrefillShape::kWarps * 32,
                                                           cuda::PrefillShape::shared_bytes(tiles)};
    }
  }
  for (const char* kernel : {"topk_level<", "topk_filter<", "topk_finish"}) table[kernel] = {cuda::kTopkThreads, 0};
}

void add_write(Table& table) {
  table["cache_write"] = {cuda::WriteShape::kThreads, 0};
  table["row_gather"] = {cuda::WriteShape::kThreads, 0};
  table["merge_parts"] = {cuda::MergeShape::kWarps * 32, 0};
}

}  // namespace

DeviceInfo described_device(int sm) {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.described = true;
  device.sm = sm;
  device.name = concat("a described device of sm_", sm);
  const bool small = sm == 86 || sm == 89 || sm >= 120;
  device.units = sm == 80 ? 108 : small ? 142 : 132;
  device.smem_per_block = (sm == 80 ? 163 : small ? 99 : 227) * 1024;
  device.smem_per_sm = device.smem_per_block + 1024;
  device.memory_bytes = int64_t{48} << 30;
  return device;
}

std::string shared_memory_table() {
  std::string text = "kernel,sm,threads,dynamic_shared_bytes\n";
  for (const int sm : {80, 86, 89, 90, 100, 120}) {
    Table table;
    add_mla(table, described_device(sm));
    add_select(table);
    add_write(table);
    for (const auto& [kernel, size] : table) {
      text += concat('"', kernel, "\",", sm, ",", size.threads, ",", size.shared, "\n");
    }
  }
  return text;
}

}  // namespace winnow::kernels
