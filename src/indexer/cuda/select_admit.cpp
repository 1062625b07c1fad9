// SPDX-License-Identifier: Apache-2.0
#include "indexer/cuda/select_admit.hpp"

#include <algorithm>

#include "core/checked.hpp"

namespace winnow::cuda {
namespace {

constexpr int64_t kSingleLevel = int64_t{kTopkThreads} * kMaxKeysPerThread;
// What a CTA of the top-k costs besides its keys, in keys per thread: barriers and the launch.
constexpr int64_t kFixedCost = 16;
constexpr int64_t kLevelBytesPerEntry = 8;  // key and position

int32_t keys_per_thread(int64_t entries) {
  int32_t keys = kMinKeysPerThread;
  while (keys < kMaxKeysPerThread && int64_t{keys} * kTopkThreads < entries) keys *= 2;
  return keys;
}

int64_t padded(int64_t topk) { return ceil_div(topk, kListAlign) * kListAlign; }

int64_t cost(int64_t ctas, int64_t keys, int32_t units) { return ceil_div(ctas, units) * (keys + kFixedCost); }

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

int64_t row_bytes_bound(int64_t pitch, int32_t topk) {
  return pitch * 4 + list_entries_bound(pitch, topk) * kLevelBytesPerEntry;
}

int64_t pitch_of(int64_t max_len) { return ceil_div(std::max<int64_t>(max_len, 1), 32) * 32; }

}  // namespace

TopkPlan plan_topk(int64_t width, int32_t topk, int32_t rows, int32_t units) {
  TopkPlan plan;
  int64_t entries = std::max<int64_t>(width, 1);
  while (entries > kSingleLevel && plan.levels < kMaxLevels - 1) {
    TopkLevel& level = plan.level[static_cast<std::size_t>(plan.levels++)];
    level.entries = entries;
    level.keys_per_thread = choose_segment(entries, topk, rows, units);
    level.segments = static_cast<int32_t>(ceil_div(entries, int64_t{level.keys_per_thread} * kTopkThreads));
    entries = level.segments * padded(topk);
  }
  plan.level[static_cast<std::size_t>(plan.levels++)] = {keys_per_thread(entries), 1, entries};
  return plan;
}

// A level leaves at most entries / 8 + one list; the sum over levels is below entries / 7 + 8 / 7 of a list per level.
int64_t list_entries_bound(int64_t width, int32_t topk) {
  return width <= kSingleLevel ? 0 : padded(width / 7) + (kMaxLevels + 2) * padded(topk);
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
  v.launch.splits = plan.topk.level[0].segments;
  v.launch.shared_bytes = shared;
  v.launch.workspace_bytes = plan.workspace_bytes;
  v.launch.note = concat("portable mma.sync, ", plan.rows, " rows of scores at a time, ", plan.topk.levels,
                         plan.topk.levels == 1 ? " selection" : " selections in a row");
  return v;
}

}  // namespace winnow::cuda
