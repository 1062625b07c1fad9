// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/mla_admit.hpp"

#include <algorithm>

#include "core/checked.hpp"

namespace winnow::cuda {
namespace {

constexpr int32_t kMaxTopk = 4096;
constexpr int64_t kReservedShared = 1024;  // what the driver keeps of an SM's shared memory for each CTA
constexpr int64_t kMaxGrid = INT32_MAX;    // x dimension of a grid

// CTAs of a tile that one SM holds: registers as compiled, 65536 an SM, and shared memory.
int32_t resident(const MlaTile& tile, const DeviceInfo& device) {
  const int64_t registers = is_wgmma(tile) ? 168 : tile.spread ? 128 : 256;
  const int64_t by_registers = 65536 / (registers * threads_of(tile));
  const int64_t by_shared = device.smem_per_sm / (shared_bytes_of(tile) + kReservedShared);
  return static_cast<int32_t>(std::min(by_registers, by_shared));
}

bool fits(const MlaTile& tile, const DeviceInfo& device) {
  return (tile.only_sm == 0 || tile.only_sm == device.sm) && shared_bytes_of(tile) <= device.smem_per_block &&
         resident(tile, device) >= tile.per_sm;
}

// The smallest CTA that takes all heads at once; above 64 heads, 64 at a time.
int team_warps_for(int32_t q_heads) { return q_heads <= 8 ? 1 : q_heads <= 16 ? 2 : q_heads <= 32 ? 4 : 8; }

// The most CTAs per SM with which a spread tile is the better one, of those that find a seat at once. Measured on an
// H200 with 64 tiles: 8 tokens of 8 heads, 3.9 CTAs per SM, take 16.4 us against 16.9; 16 tokens 32 against 19.
constexpr int64_t kSpreadPerSm = 4;

// A few tokens, and heads in blocks of eight: the list is cut into single tiles, as far as the merge takes that many.
const MlaTile* spread_for(const SparseMlaProblem& problem, const DeviceInfo& device) {
  for (const MlaTile& tile : kMlaTiles) {
    if (!tile.spread || tile.rows != problem.rows || !fits(tile, device)) continue;
    const int64_t steps = std::max<int64_t>(1, ceil_div(problem.topk, tile.tile_rows));
    if (tile.stages == 1 && steps > kMostSplits) continue;  // the merge takes no more, so some CTAs have two
    const int64_t blocks = ceil_div(problem.q_heads, heads_of(tile)) * problem.tokens;
    const int64_t seats = std::min<int64_t>(kSpreadPerSm, resident(tile, device)) * device.units;
    if (blocks * steps <= seats) return &tile;
  }
  return nullptr;
}

const MlaTile* tile_for(const SparseMlaProblem& problem, const DeviceInfo& device) {
  if (const MlaTile* spread = spread_for(problem, device)) return spread;
  for (const MlaTile& tile : kMlaTiles) {
    if (!tile.spread && tile.rows == problem.rows && tile.team_warps == team_warps_for(problem.q_heads) &&
        fits(tile, device)) {
      return &tile;
    }
  }
  return nullptr;
}

// Splits that finish first by a model in units of one step of a team: waves * (steps of a split + start and end of a
// CTA), and for more than one split the merge: its launch, and partial outputs through L2. Shapes only, never lengths.
int32_t splits_for(const MlaTile& tile, int64_t blocks, int32_t topk, const DeviceInfo& device) {
  if (tile.spread) return static_cast<int32_t>(std::clamp<int64_t>(ceil_div(topk, tile.tile_rows), 1, kMostSplits));
  constexpr double kCtaSteps = 2.0;       // launch, list, first rows, output
  constexpr double kMergeSteps = 2.0;     // launch of the merge
  constexpr double kPartialSteps = 0.12;  // writing and reading 8 heads of one split, per SM
  constexpr double kSplitSteps = 0.02;    // one more split for the merge to look at
  const int64_t steps = ceil_div(ceil_div(topk, tile.tile_rows), tile.teams);
  const int64_t seats = std::max<int64_t>(1, device.units) * std::max(1, resident(tile, device));
  int32_t best = 1;
  double best_time = 0;
  for (int32_t s = 1; s <= std::min<int64_t>(kMaxSplits, std::max<int64_t>(1, steps)); ++s) {
    const double waves = static_cast<double>(ceil_div(blocks * s, seats));
    double time = waves * (static_cast<double>(ceil_div(steps, s)) + kCtaSteps);
    if (s > 1) {
      const double per_sm = static_cast<double>(blocks * s * tile.team_warps) / std::max(1, device.units);
      time += kMergeSteps + kPartialSteps * per_sm + kSplitSteps * s;
    }
    if (s == 1 || time < best_time) best = s, best_time = time;
  }
  return best;
}

std::string note_of(const MlaTile& tile, const DeviceInfo& device) {
  return concat(tile.name, is_wgmma(tile) ? ", wgmma, " : ", mma.sync, ", threads_of(tile), " threads, ",
                resident(tile, device), " blocks per SM",
                tile.spread                          ? ", spread over the SMs for few tokens"
                : tile.overlapped && !is_wgmma(tile) ? ", scores of the next tile overlap values of this one"
                                                     : "");
}

}  // namespace

MlaPlan plan_mla(const SparseMlaProblem& problem, const DeviceInfo& device) {
  MlaPlan plan;
  plan.tile = tile_for(problem, device);
  if (plan.tile == nullptr) return plan;
  const int32_t heads = heads_of(*plan.tile);
  plan.head_blocks = static_cast<int32_t>(ceil_div(problem.q_heads, heads));
  plan.shared_bytes = shared_bytes_of(*plan.tile);
  const int64_t blocks = static_cast<int64_t>(problem.tokens) * plan.head_blocks;
  plan.splits = blocks == 0 ? 1 : splits_for(*plan.tile, blocks, problem.topk, device);
  if (plan.splits > 1) {
    plan.partial_bytes = blocks * plan.splits * heads * kLatents * static_cast<int64_t>(sizeof(float));
    plan.workspace_bytes = plan.partial_bytes + blocks * plan.splits * heads * 2 * static_cast<int64_t>(sizeof(float));
  }
  return plan;
}

Verdict admits_mla(const SparseMlaProblem& p, const DeviceInfo& device) {
  Verdict v;
  v.need(device.kind == DeviceKind::cuda, "device", "an NVIDIA GPU", device.name.empty() ? "a CPU" : device.name);
  if (device.kind != DeviceKind::cuda) return v;
  v.need(device.sm >= 80, "sm", "80 or later", device.sm);
  v.need(p.activations == DType::bf16, "activations", "bf16", name_of(p.activations));
  v.need(p.rows == RowFormat::bf16 || p.rows == RowFormat::v32_fp8, "rows", "bf16 or v32_fp8", name_of(p.rows));
  v.need(p.d_nope == kLatents, "d_nope", kLatents, p.d_nope);
  v.need(p.d_rope == 0 || p.d_rope == kRotated, "d_rope", "64 or 0", p.d_rope);
  v.need(p.d_v >= 8 && p.d_v <= kLatents && p.d_v % 8 == 0, "d_v", "a multiple of 8 up to 512", p.d_v);
  v.need(p.q_heads >= 1 && p.q_heads <= 128, "q_heads", "1 to 128", p.q_heads);
  v.need(p.topk >= 0 && p.topk <= kMaxTopk, "topk", "0 to 4096", p.topk);
  v.need(p.page_size >= 1, "page_size", "at least 1", p.page_size);
  v.need(p.tokens >= 0, "tokens", "0 or more", p.tokens);
  if (!v.admitted()) return v;
  const MlaPlan plan = plan_mla(p, device);
  v.need(plan.tile != nullptr, "shared memory per block", "at least 99 KB",
         concat(device.smem_per_block / 1024, " KB"));
  if (!v.admitted()) return v;
  const int64_t merge_blocks = merge_blocks_for(*plan.tile, kMostSplits);
  v.need(static_cast<int64_t>(p.tokens) * plan.head_blocks * std::max<int64_t>(plan.splits, merge_blocks) <= kMaxGrid,
         "tokens", "a grid of at most 2^31 blocks", p.tokens);
  v.launch.heads_per_block = heads_of(*plan.tile);
  v.launch.rows_per_tile = plan.tile->tile_rows;
  v.launch.stages = plan.tile->stages;
  v.launch.splits = plan.splits;
  v.launch.shared_bytes = plan.shared_bytes;
  v.launch.workspace_bytes = plan.workspace_bytes;
  v.launch.note = note_of(*plan.tile, device);
  return v;
}

}  // namespace winnow::cuda
