// SPDX-License-Identifier: Apache-2.0
#include "indexer/cuda/select_admit.hpp"

#include <algorithm>
#include <cmath>

#include "core/checked.hpp"

namespace winnow::cuda {
namespace {

constexpr int64_t kSingleLevel = int64_t{kTopkThreads} * kMaxKeysPerThread;
// What CTAs of the top-k cost besides their keys, in keys per thread of one wave (0.11 us on an H200): barriers,
// launch.
constexpr int64_t kFixedCost = 54, kFilterCost = 41, kFinishCost = 75;
constexpr int64_t kLevelBytesPerEntry = 8;  // key and position

int32_t keys_per_thread(int64_t entries) {
  int32_t keys = kMinKeysPerThread;
  while (keys < kMaxKeysPerThread && int64_t{keys} * kTopkThreads < entries) keys *= 2;
  return keys;
}

int64_t padded(int64_t topk) { return ceil_div(topk, kListAlign) * kListAlign; }

// CTAs of 16 keys per thread and fewer share an SM by twos.
int64_t waves(int64_t ctas, int64_t keys, int32_t units) {
  return ceil_div(ctas, int64_t{units} * (keys <= 16 ? 2 : 1));
}
int64_t cost(int64_t ctas, int64_t keys, int32_t units) { return waves(ctas, keys, units) * (keys + kFixedCost); }

// Keys per thread of the level that reads `entries`, more than one CTA takes. A segment is at least 8 lists long, so
// that lists stay an eighth of what they were made from; then the cheaper of the sizes, counting the level after it.
int32_t choose_segment(int64_t entries, int32_t topk, int32_t rows, int32_t units) {
  int32_t best = kMaxKeysPerThread;
  int64_t best_cost = 0;
  for (int32_t keys = kMaxKeysPerThread; keys >= kMinKeysPerThread; keys /= 2) {
    const int64_t segment = int64_t{keys} * kTopkThreads;
    if (segment < 8 * padded(topk) && keys != kMaxKeysPerThread) break;
    const int64_t segments = ceil_div(entries, segment);
    const int64_t next = segments * padded(topk);
    if (next > kSingleLevel && keys != kMaxKeysPerThread) break;
    const int64_t total =
        cost(rows * segments, keys, units) + cost(rows, keys_per_thread(std::min(next, kSingleLevel)), units);
    if (best_cost == 0 || total < best_cost) {
      best = keys;
      best_cost = total;
    }
  }
  return best;
}

// Two launches for rows longer than one CTA takes, as far as the second holds what the first leaves.
TopkSplit plan_split(int64_t width, int32_t topk) {
  constexpr int64_t kBlock = kSplitBlock, kBlocksPerKey = kTopkThreads / kBlock;
  constexpr int32_t kSlack = 16;
  TopkSplit split;
  if (width <= kSingleLevel || width > int64_t{kSplitBlocks} * kBlock) return split;
  split.keys_per_thread = 8;
  while (ceil_div(width, kBlock) > split.keys_per_thread * kBlocksPerKey * kSplitSegments) split.keys_per_thread *= 2;
  const auto segments = static_cast<int32_t>(ceil_div(width, int64_t{split.keys_per_thread} * kTopkThreads));
  // A segment's part of topk spreads like a Poisson number around its fair share: a row in which
  // a segment holds more takes the slow way, so leave room for more than six deviations.
  const double share = static_cast<double>(topk) / segments;
  split.rank = static_cast<int32_t>(share + 5.5 * std::sqrt(share)) + 6;
  split.capacity = static_cast<int32_t>(round_up(split.rank + kSlack, 8));
  const bool fits = segments * split.capacity <= kSplitEntries && split.rank <= kTopkThreads;
  split.segments = fits ? segments : 0;
  split.row_bytes = round_up(segments * (int64_t{split.capacity} * 10 + 8) + int64_t{kSplitBlocks} * 2, 16);
  return split;
}

int64_t row_bytes_bound(int64_t pitch, int32_t topk) {
  return pitch * 4 + list_entries_bound(pitch, topk) * kLevelBytesPerEntry;
}

int64_t pitch_of(int64_t max_len) { return ceil_div(std::max<int64_t>(max_len, 1), 32) * 32; }

}  // namespace

TopkPlan plan_topk(int64_t width, int32_t topk, int32_t rows, int32_t units, bool vector) {
  TopkPlan plan;
  int64_t entries = std::max<int64_t>(width, 1), tree_cost = 0;
  while (entries > kSingleLevel && plan.levels < kMaxLevels - 1) {
    TopkLevel& level = plan.level[static_cast<std::size_t>(plan.levels++)];
    level.entries = entries;
    level.keys_per_thread = choose_segment(entries, topk, rows, units);
    level.segments = static_cast<int32_t>(ceil_div(entries, int64_t{level.keys_per_thread} * kTopkThreads));
    tree_cost += cost(int64_t{rows} * level.segments, level.keys_per_thread, units);
    entries = level.segments * padded(topk);
  }
  plan.level[static_cast<std::size_t>(plan.levels++)] = {keys_per_thread(entries), 1, entries};
  tree_cost += cost(rows, keys_per_thread(entries), units);
  if (!vector) return plan;
  const TopkSplit split = plan_split(width, topk);
  const int64_t filters = waves(int64_t{rows} * split.segments, split.keys_per_thread, units);
  const int64_t split_cost = filters * (split.keys_per_thread + kFilterCost) + ceil_div(rows, units) * kFinishCost;
  if (split.segments > 0 && split_cost < tree_cost) plan.split = split;
  return plan;
}

// A level leaves at most entries / 8 + one list; the sum over levels is below entries / 7 + 8 / 7 of a list per level.
int64_t list_entries_bound(int64_t width, int32_t topk) {
  if (width <= kSingleLevel) return 0;
  constexpr int64_t kSplitPairs =
      (kSplitEntries * 10 + kSplitSegments * 8 + kSplitBlocks * 2 + 16) / kLevelBytesPerEntry;
  return padded(width / 7) + (kMaxLevels + 2) * padded(topk) + padded(kSplitPairs);
}

SelectPlan plan_select(const IndexSelectProblem& p, const DeviceInfo& device, int64_t budget) {
  SelectPlan plan;
  plan.tiles = head_tiles(p.index_heads);
  plan.pitch = pitch_of(p.max_len);
  plan.list_entries = list_entries_bound(plan.pitch, p.topk);
  const int64_t row = row_bytes_bound(plan.pitch, p.topk);
  const int64_t cap = std::max(budget, row);
  const int64_t tokens = std::max<int64_t>(p.tokens, 1);
  plan.rows = static_cast<int32_t>(std::clamp<int64_t>(cap / row, 1, tokens));
  if (plan.rows < tokens) plan.rows = std::max(plan.rows / 16 * 16, std::min(plan.rows, 16));  // whole query groups
  // Capped plans ask for the cap itself: the need must not shrink where larger rows leave a larger remainder.
  plan.workspace_bytes = tokens <= cap / row ? tokens * row : cap;
  plan.topk = plan_topk(p.max_len, p.topk, plan.rows, std::max(device.units, 1));
  return plan;
}

Verdict admits_select(const IndexSelectProblem& p, const DeviceInfo& device) {
  Verdict v;
  v.need(device.kind == DeviceKind::cuda, "device", "an NVIDIA GPU", "a CPU");
  v.need(device.sm >= 80, "sm", "80 or later", device.sm);
  v.need(p.index_heads >= 1 && p.index_heads <= kMaxIndexHeads, "index_heads", "1 to 64", p.index_heads);
  v.need(p.index_dim == kIndexDim, "index_dim", kIndexDim, p.index_dim);
  v.need(p.topk >= 1 && p.topk <= kMaxTopk, "topk", "1 to 4096", p.topk);
  v.need(p.page_size >= 1, "page_size", "at least 1", p.page_size);
  v.need(p.keys != KeyFormat::f32, "keys", "bf16 or fp8", name_of(p.keys));
  v.need(p.q_type == DType::bf16 || p.q_type == DType::e4m3, "q_type", "bf16 or e4m3", name_of(p.q_type));
  if (!v.admitted()) return v;
  v.need(row_bytes_bound(pitch_of(p.max_len), p.topk) <= kSelectWorkspace, "max_len",
         concat("scores of one token within ", kSelectWorkspace, " bytes"), p.max_len);
  const int tiles = head_tiles(p.index_heads);
  const int64_t shared = std::max(DecodeShape::shared_bytes(tiles), PrefillShape::shared_bytes(tiles));
  v.need(device.smem_per_block >= shared, "smem_per_block", concat("at least ", shared, " bytes"),
         device.smem_per_block);
  if (!v.admitted()) return v;
  const SelectPlan plan = plan_select(p, device, kSelectWorkspace);
  v.launch.heads_per_block = tiles * 8;
  v.launch.rows_per_tile = DecodeShape::tile_keys(p.keys);
  v.launch.stages = DecodeShape::kStages;
  const bool split = plan.topk.split.segments > 0;
  v.launch.splits = split ? plan.topk.split.segments : plan.topk.level[0].segments;
  v.launch.shared_bytes = shared;
  v.launch.workspace_bytes = plan.workspace_bytes;
  v.launch.note = concat("portable mma.sync, ", plan.rows, " rows of scores at a time, top-k in ",
                         split ? 2 : plan.topk.levels, split || plan.topk.levels > 1 ? " launches" : " launch");
  return v;
}

}  // namespace winnow::cuda
