// SPDX-License-Identifier: Apache-2.0
// Which launches the CUDA indexer makes for a problem: facts in, plan out. No CUDA header, so that `winnow plan` can
// speak of a GPU that is only described; the launcher reads the same plan.
//
// Scores of `rows` query tokens at a time lie in the workspace as [rows, pitch] floats; a tree of exact selections
// then reduces each row: level 0 reads the scores, later levels the lists of the one before. Rows, levels and grids
// follow from sizes alone, so that a captured graph stays right when lengths change.
#pragma once

#include <array>
#include <cstdint>

#include "contract/device_info.hpp"
#include "contract/index_select.hpp"
#include "contract/verdict.hpp"

namespace winnow::cuda {

inline constexpr int kIndexDim = 128;
inline constexpr int kMaxIndexHeads = 64;
inline constexpr int kMaxTopk = 4096;
inline constexpr int kTopkThreads = 512;
inline constexpr int kMinKeysPerThread = 8;
inline constexpr int kMaxKeysPerThread = 64;  // kept in registers: 32768 values per CTA
inline constexpr int kMaxLevels = 8;
inline constexpr int64_t kSelectWorkspace = int64_t{256} << 20;  // the most that a plan asks for
inline constexpr int kListAlign = 4;                             // list entries, for 16-byte loads
inline constexpr int kSplitBlock = 128;                          // scores of a warp's 16-byte loads
inline constexpr int kSplitSegments = 64, kSplitBlocks = 4096, kSplitEntries = 6144;  // limits of topk_split.cuh

// One level of the tree: every CTA takes `keys_per_thread * kTopkThreads` entries of a row down to topk.
struct TopkLevel {
  int32_t keys_per_thread = 0;  // 8, 16, 32 or 64
  int32_t segments = 0;         // CTAs per row; 1 on the last level
  int64_t entries = 0;          // entries of a row that this level reads
};

// The two launches for long rows (topk_split.cuh). Not used: segments 0.
struct TopkSplit {
  int32_t segments = 0;         // CTAs per row of the first launch
  int32_t keys_per_thread = 0;  // 8 or 16
  int32_t rank = 0, capacity = 0;
  int64_t row_bytes = 0;  // of what the first launch leaves for the second
};

struct TopkPlan {
  int32_t levels = 0;  // of the tree, which runs when there is no split
  std::array<TopkLevel, kMaxLevels> level{};
  TopkSplit split;
};

// Heads of a score tile come in groups of 8, the n of an mma; 8, 16, 32 and 64 are compiled.
[[nodiscard]] constexpr int head_tiles(int index_heads) {
  return index_heads <= 8 ? 1 : index_heads <= 16 ? 2 : index_heads <= 32 ? 4 : 8;
}

// score_decode: one query token per CTA, keys through a ring of shared memory that each warp owns. A tile is 4 KB: 32
// fp8 or 16 bf16 keys.
struct DecodeShape {
  static constexpr int kWarps = 4;
  static constexpr int kStages = 2;
  static constexpr int kTileBytes = 4096;
  static constexpr int tile_keys(KeyFormat keys) { return kTileBytes / kIndexDim / (keys == KeyFormat::fp8 ? 1 : 2); }
  static constexpr int64_t shared_bytes(int tiles) {
    return int64_t{kWarps} * kStages * (kTileBytes + 128) + tiles * (8 * kIndexDim * 2 + 8 * 4);
  }
  static constexpr int ctas_per_sm(int tiles) { return tiles == 8 ? 2 : 4; }
};

// score_prefill: several query tokens per CTA stay in shared memory, a warp keeps 32 keys in registers.
struct PrefillShape {
  static constexpr int kWarps = 12;
  static constexpr int kTileKeys = 32;
  static constexpr int queries(int tiles) { return tiles == 8 ? 4 : tiles == 4 ? 8 : 16; }
  static constexpr int64_t shared_bytes(int tiles) {
    return int64_t{queries(tiles)} * tiles * (8 * kIndexDim * 2 + 8 * 4);
  }
};

struct SelectPlan {
  int32_t tiles = 0;         // head tiles of 8
  int32_t rows = 0;          // query tokens whose scores exist at once
  int64_t pitch = 0;         // floats from one row of scores to the next
  int64_t list_entries = 0;  // (key, position) pairs of all levels, per row
  int64_t workspace_bytes = 0;
  TopkPlan topk;
};

// The tree for rows of `width` entries; `rows` of them run at a time on `units` multiprocessors.
// Split rows want 16-byte loads.
[[nodiscard]] TopkPlan plan_topk(int64_t width, int32_t topk, int32_t rows, int32_t units, bool vector = true);
// Pairs per row that the levels between the first and the last write; never less than any plan_topk needs.
[[nodiscard]] int64_t list_entries_bound(int64_t width, int32_t topk);
// Workspace of plan_select never shrinks when tokens, topk or max_len grow. `budget` caps it, one row at least.
[[nodiscard]] SelectPlan plan_select(const IndexSelectProblem& problem, const DeviceInfo& device, int64_t budget);

[[nodiscard]] Verdict admits_select(const IndexSelectProblem& problem, const DeviceInfo& device);

}  // namespace winnow::cuda
