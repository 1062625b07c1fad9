// SPDX-License-Identifier: Apache-2.0
// run_select: for each share of the tokens that the workspace holds scores for, one launch of scores, then the levels
// of the top-k, all on one stream. No value from device memory steers a launch.
#include "indexer/cuda/select.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "core/checked.hpp"
#include "indexer/cuda/launch.hpp"
#include "indexer/cuda/topk.hpp"

namespace winnow::cuda {
namespace {
using indexer::FastDivisor;
using indexer::ScoreParams;
using indexer::Sequences;
using indexer::TopkParams;

bool aligned(const void* pointer, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Several query tokens per sequence share key tiles in score_prefill; below this many, score_decode reads keys again
// out of L2 and is faster. Only speed hangs on it.
constexpr int64_t kTokensPerSequence = 4;

bool many_queries(const IndexSelectProblem& p, const IndexSelectBuffers& b) {
  return p.tokens >= kTokensPerSequence * std::max<int64_t>(b.page_table.size(0), 1);
}

// CTAs per token (or group): one wave when that leaves each several, else so many that the last wave is short.
int32_t splits_for(int64_t groups, int64_t resident, int64_t max_tiles, int warps) {
  const int64_t share = resident / std::max<int64_t>(groups, 1);
  const int64_t splits = share >= 4 ? share : ceil_div(4 * resident, groups);
  const int64_t useful = std::max<int64_t>(1, max_tiles / (2 * warps));  // two tiles a warp at least
  return static_cast<int32_t>(std::clamp<int64_t>(splits, 1, useful));
}

Sequences sequences_of(const IndexSelectProblem& p, const IndexSelectBuffers& b) {
  Sequences s{};
  s.page_table = b.page_table.data;
  s.table_stride = b.page_table.stride(0);
  s.seq = b.seq.data;
  s.start = b.start.data;
  s.len = b.len.data;
  s.sequences = b.page_table.rank == 2 ? static_cast<int32_t>(b.page_table.size(0)) : 0;
  s.max_len = static_cast<int32_t>(p.max_len);
  s.pages = b.keys.pages;
  s.page_size = FastDivisor(static_cast<uint32_t>(p.page_size));
  return s;
}

ScoreParams score_params(const IndexSelectProblem& p, const IndexSelectBuffers& b, const SelectPlan& plan,
                         float* scores) {
  ScoreParams s{};
  s.sequences = sequences_of(p, b);
  s.q = b.q.data;
  s.q_token_stride = b.q.token_stride;
  s.q_head_stride = b.q.head_stride;
  s.q_e4m3 = p.q_type == DType::e4m3;
  s.q_vector = aligned(b.q.data, 4 * static_cast<uintptr_t>(bytes_of(p.q_type))) && b.q.token_stride % 4 == 0 &&
               b.q.head_stride % 4 == 0;
  s.weight = b.weight.data;
  s.weight_stride = b.weight.stride(0);
  s.keys = reinterpret_cast<const uint8_t*>(b.keys.data);
  s.key_page_stride = b.keys.page_stride_bytes;
  s.key_vector = aligned(b.keys.data, 16) && b.keys.page_stride_bytes % 16 == 0 &&
                 p.page_size % DecodeShape::tile_keys(p.keys) == 0;
  s.scores = scores;
  s.pitch = plan.pitch;
  s.heads = p.index_heads;
  s.topk = p.topk;
  return s;
}

Status launch_scores(ScoreParams s, const IndexSelectProblem& p, const SelectPlan& plan, const DeviceInfo& device,
                     bool prefill, cudaStream_t stream) {
  const bool fp8 = p.keys == KeyFormat::fp8;
  if (prefill) {
    s.splits = splits_for(ceil_div(s.rows, PrefillShape::queries(plan.tiles)), device.units,
                          ceil_div(p.max_len, PrefillShape::kTileKeys), PrefillShape::kWarps);
    return fp8 ? indexer::launch_prefill_fp8(s, plan.tiles, stream)
               : indexer::launch_prefill_bf16(s, plan.tiles, stream);
  }
  s.splits = splits_for(s.rows, int64_t{device.units} * DecodeShape::ctas_per_sm(plan.tiles),
                        ceil_div(p.max_len, DecodeShape::tile_keys(p.keys)), DecodeShape::kWarps);
  return fp8 ? indexer::launch_decode_fp8(s, plan.tiles, stream) : indexer::launch_decode_bf16(s, plan.tiles, stream);
}

struct Lists {
  float* values;       // [rows, stride]
  int32_t* positions;  // [rows, stride]
  std::byte* survivors;
  int64_t stride;  // entries
};

// Room for `entries` pairs per row, cut into the lists of all levels and, for split rows, the survivors behind them.
Lists make_lists(void* memory, int64_t rows, int64_t entries, const TopkPlan& plan) {
  const int64_t stride =
      entries - ceil_div(plan.split.segments > 0 ? plan.split.row_bytes : 0, 8 * kListAlign) * kListAlign;
  auto* values = static_cast<float*>(memory);
  auto* positions = reinterpret_cast<int32_t*>(values + rows * stride);
  return {values, positions, reinterpret_cast<std::byte*>(positions + rows * stride), stride};
}

// Per device, set by init_select: 0 unknown (as no), 1 no, 2 yes.
constexpr int kMaxDevices = 64;
std::array<std::atomic<uint8_t>, kMaxDevices> overlap_of_device{};

bool can_overlap() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= kMaxDevices) return false;
  return overlap_of_device[static_cast<std::size_t>(device)].load(std::memory_order_relaxed) == 2;
}

// The lists of the slow way first, then what the first launch leaves for the second.
Status launch_split(TopkParams t, const TopkSplit& split, int32_t rows, Lists lists, bool overlapped,
                    cudaStream_t stream) {
  indexer::SplitParams s{};
  s.segments = FastDivisor(static_cast<uint32_t>(split.segments));
  s.blocks = split.keys_per_thread * kTopkThreads / kSplitBlock;
  s.rank = split.rank;
  s.capacity = FastDivisor(static_cast<uint32_t>(split.capacity));
  s.survivors = reinterpret_cast<uint8_t*>(lists.survivors);
  s.survivors_stride = split.row_bytes;
  t.out_values = lists.values;
  t.out_positions = lists.positions;
  s.row[0] = s.row[1] = s.row[2] = t;
  s.row[1].scores = s.row[2].scores = nullptr;
  s.row[1].in_values = lists.values;
  s.row[1].in_positions = lists.positions;
  s.row[1].in_stride = lists.stride;
  s.row[1].entries =
      static_cast<int32_t>(ceil_div(t.entries, int64_t{kMaxKeysPerThread} * kTopkThreads)) * t.list_length;
  // Positions lie behind the values, see indexer::Survivors.
  s.row[2].in_positions = reinterpret_cast<const int32_t*>(s.survivors) + s.segment_count() * s.list_capacity();
  s.row[2].in_stride = split.row_bytes / 4;
  return indexer::launch_topk_split(s, rows, split.keys_per_thread, overlapped, can_overlap(), stream);
}

// Every level writes its lists behind those of the level before.
// after_scores: the kernel before on the stream is the scorer of the same call.
Status launch_topk(TopkParams t, const TopkPlan& plan, int32_t rows, Lists lists, bool after_scores,
                   cudaStream_t stream) {
  const bool overlap = can_overlap();
  t.list_stride = lists.stride;
  t.entries = t.sequences.max_len;
  if (plan.split.segments > 0) return launch_split(t, plan.split, rows, lists, overlap && after_scores, stream);
  int64_t written = 0;  // entries of a row used by the lists so far
  for (int32_t l = 0; l < plan.levels; ++l) {
    const TopkLevel& level = plan.level[static_cast<std::size_t>(l)];
    t.entries = static_cast<int32_t>(level.entries);
    t.segments = level.segments;
    const bool last = l + 1 == plan.levels;
    t.out_values = last ? nullptr : lists.values + written;
    t.out_positions = last ? nullptr : lists.positions + written;
    WINNOW_TRY(indexer::launch_topk_level(t, rows, level.keys_per_thread, overlap && (l > 0 || after_scores), stream));
    t.scores = nullptr;
    t.in_values = t.out_values;
    t.in_positions = t.out_positions;
    t.in_stride = t.list_stride;
    written += int64_t{level.segments} * t.list_length;
  }
  return {};
}

TopkParams topk_params(int32_t topk) {
  TopkParams t{};
  t.topk = topk;
  t.list_length = static_cast<int32_t>(ceil_div(topk, kListAlign) * kListAlign);
  return t;
}

Status need_workspace(const char* operation, const Execution& execution, int64_t bytes) {
  if (execution.workspace_bytes >= bytes && (execution.workspace != nullptr || bytes == 0)) return {};
  return error(StatusCode::invalid_argument, operation, ": workspace has ", execution.workspace_bytes, " bytes, wants ",
               bytes);
}

}  // namespace

Status run_select(const IndexSelectProblem& p, const IndexSelectBuffers& b, const DeviceInfo& device,
                  const Execution& execution) {
  if (p.tokens == 0) return {};
  const int64_t budget = std::min(execution.workspace_bytes, kSelectWorkspace);
  const SelectPlan plan = plan_select(p, device, budget);
  WINNOW_TRY(need_workspace("index_select", execution, plan.workspace_bytes));
  auto* scores = reinterpret_cast<float*>(execution.workspace);
  const Lists lists = make_lists(scores + plan.rows * plan.pitch, plan.rows, plan.list_entries, plan.topk);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const bool prefill = many_queries(p, b);

  ScoreParams s = score_params(p, b, plan, scores);
  TopkParams t = topk_params(p.topk);
  t.sequences = s.sequences;
  t.scores = scores;
  t.pitch = plan.pitch;
  t.vector = true;
  t.out = b.out.data;
  t.out_stride = b.out.stride(0);
  t.out_len = b.out_len.data;
  t.output_slots = p.output_slots;
  for (int32_t first = 0; first < p.tokens; first += plan.rows) {
    s.first_token = t.first_token = first;
    s.rows = std::min(plan.rows, p.tokens - first);
    const bool scored = p.max_len > p.topk;
    if (scored) WINNOW_TRY(launch_scores(s, p, plan, device, prefill, stream));
    WINNOW_TRY(launch_topk(t, plan.topk, s.rows, lists, scored, stream));
  }
  return {};
}

Status init_select(const DeviceInfo&) {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess && device >= 0 && device < kMaxDevices) {
    overlap_of_device[static_cast<std::size_t>(device)] = indexer::topk_can_overlap() ? 2 : 1;
  }
  WINNOW_TRY(indexer::init_decode_fp8());
  WINNOW_TRY(indexer::init_decode_bf16());
  WINNOW_TRY(indexer::init_prefill_fp8());
  return indexer::init_prefill_bf16();
}

int64_t topk_workspace_bytes(int32_t rows, int32_t width, int32_t topk) {
  return rows * list_entries_bound(width, topk) * 8;
}

Status run_topk(const TopkRows& r, const DeviceInfo& device, const Execution& execution) {
  if (r.rows == 0) return {};
  const int64_t entries = list_entries_bound(r.width, r.topk);
  const bool vector = aligned(r.scores, 16) && r.pitch % 4 == 0;
  WINNOW_TRY(need_workspace("topk", execution, topk_workspace_bytes(r.rows, r.width, r.topk)));
  const TopkPlan plan = plan_topk(r.width, r.topk, r.rows, std::max(device.units, 1), vector);
  const Lists lists = make_lists(execution.workspace, r.rows, entries, plan);
  TopkParams t = topk_params(r.topk);
  t.sequences.len = r.len;
  t.sequences.sequences = 1;
  t.sequences.max_len = r.width;
  t.scores = r.scores;
  t.pitch = r.pitch;
  t.vector = vector;
  t.out = r.out;
  t.out_stride = r.out_stride;
  t.out_len = r.out_len;
  return launch_topk(t, plan, r.rows, lists, false, static_cast<cudaStream_t>(execution.stream));
}

}  // namespace winnow::cuda
