// SPDX-License-Identifier: Apache-2.0
// Benchmarks run through the C ABI on random data made on the device. Lists are drawn without repeats.
#include "kernels/bench_case.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "indexer/cuda/topk.hpp"
#include "kernels/abi_calls.hpp"
#include "kernels/device_facts.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/fill.hpp"

namespace winnow::kernels {
namespace {

constexpr int32_t kNope = 512;
constexpr int32_t kIndexDim = 128;

// topk different numbers below `context` for each token.
std::vector<int32_t> random_slots(const BenchCase& b, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> pool(static_cast<std::size_t>(b.context));
  std::iota(pool.begin(), pool.end(), 0);
  std::vector<int32_t> slots;
  slots.reserve(static_cast<std::size_t>(b.tokens) * b.topk);
  const int64_t listed = std::min<int64_t>(b.topk, b.context);
  for (int32_t t = 0; t < b.tokens; ++t) {
    for (int64_t i = 0; i < listed; ++i) {  // partial Fisher-Yates: the pool stays a permutation for the next token
      const int64_t j = i + static_cast<int64_t>(random() % static_cast<uint64_t>(b.context - i));
      std::swap(pool[i], pool[j]);
    }
    const auto first = static_cast<std::ptrdiff_t>(slots.size());
    slots.insert(slots.end(), pool.begin(), pool.begin() + listed);
    if (b.sorted_slots) std::sort(slots.begin() + first, slots.end());
    slots.resize(static_cast<std::size_t>(t + 1) * b.topk, -1);
  }
  return slots;
}

template <class Query>
Result<DeviceBuffer> workspace_for(winnow_execution& execution, Query query) {
  execution.struct_size = sizeof execution;
  WINNOW_TRY(abi_status(query(&execution.workspace_bytes)));
  WINNOW_TRY_ASSIGN(DeviceBuffer workspace, DeviceBuffer::allocate("workspace", execution.workspace_bytes));
  execution.workspace = workspace.data();
  return workspace;
}

std::string describe_launch(const winnow_verdict& verdict) {
  const winnow_launch_facts& l = verdict.launch;
  return concat(l.heads_per_block, " heads x ", l.rows_per_tile, " rows, ", l.stages, " stages, ", l.splits,
                " splits, ", l.shared_bytes, " B shared; ", l.note);
}

winnow_verdict empty_verdict() {
  winnow_verdict verdict{};
  verdict.struct_size = sizeof verdict;
  verdict.launch.struct_size = sizeof verdict.launch;
  verdict.launch.splits = 1;
  return verdict;
}

Result<BenchResult> bench_mla(const BenchCase& b, const TimingPlan& plan, uint64_t seed, cudaStream_t stream) {
  const int32_t d_qk = kNope + b.d_rope;
  const int64_t row = row_bytes(b.rows, kNope, b.d_rope);
  const int64_t pages = (b.context + b.page_size - 1) / b.page_size;
  const int64_t q_elements = int64_t{b.tokens} * b.heads * d_qk;
  const int64_t out_elements = int64_t{b.tokens} * b.heads * kNope;
  WINNOW_TRY_ASSIGN(const DeviceBuffer q, DeviceBuffer::allocate("q", q_elements * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer cache, DeviceBuffer::allocate("cache", pages * b.page_size * row));
  WINNOW_TRY_ASSIGN(const DeviceBuffer out, DeviceBuffer::allocate("out", out_elements * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer lse, DeviceBuffer::allocate("lse", int64_t{b.tokens} * b.heads * 4));
  WINNOW_TRY(fill_normal_bf16(q.data(), q_elements, 1.0f, seed, stream));
  if (b.rows == RowFormat::bf16) {
    WINNOW_TRY(fill_normal_bf16(cache.data(), cache.bytes() / 2, 1.0f, seed + 1, stream));
  } else {
    WINNOW_TRY(fill_v32_fp8_rows(cache.data(), pages * b.page_size, row, b.d_rope, seed + 1, stream));
  }
  const std::vector<int32_t> lists = random_slots(b, seed);
  WINNOW_TRY_ASSIGN(const DeviceBuffer slots, DeviceBuffer::upload("slots", lists.data(), std::ssize(lists) * 4));

  SparseMlaProblem problem{b.tokens, b.heads, b.topk, b.page_size, kNope, b.d_rope, kNope, 1.0f / 24, b.rows};
  const winnow_mla_problem p = c_problem(problem);
  winnow_mla_buffers buffers{};
  buffers.struct_size = sizeof buffers;
  buffers.q = {q.data(), int64_t{b.heads} * d_qk, d_qk};
  buffers.cache = {cache.data(), pages, b.page_size * row, row};
  buffers.topk_slots = slots.as<int32_t>();
  buffers.topk_slots_stride = b.topk;
  buffers.out = {out.data(), int64_t{b.heads} * kNope, kNope};
  buffers.lse = lse.as<float>();
  buffers.lse_stride = b.heads;
  winnow_execution execution{};
  WINNOW_TRY_ASSIGN(const DeviceBuffer workspace,
                    workspace_for(execution, [&p](int64_t* bytes) { return winnow_sparse_mla_workspace(&p, bytes); }));
  BenchResult result;
  winnow_verdict verdict = empty_verdict();
  WINNOW_TRY(abi_status(winnow_sparse_mla_admits(&p, nullptr, &verdict)));
  result.launch = describe_launch(verdict);
  WINNOW_TRY_ASSIGN(result.timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      execution.stream = s;
                      return abi_status(winnow_sparse_mla(&p, &buffers, &execution));
                    }));
  const double rows = static_cast<double>(b.tokens) * b.topk;
  result.bytes = rows * static_cast<double>(row) + 2.0 * static_cast<double>(q_elements + out_elements);
  result.flop = 2.0 * rows * b.heads * (d_qk + kNope);
  return result;
}

Result<BenchResult> bench_select(const BenchCase& b, const TimingPlan& plan, uint64_t seed, cudaStream_t stream) {
  const int64_t pages_each = (b.context + b.page_size - 1) / b.page_size;
  const int64_t sequences = b.shared_context ? 1 : b.tokens;
  const int64_t pages = pages_each * sequences;
  const int64_t page_bytes = key_page_bytes(b.keys, b.page_size, kIndexDim);
  const int64_t q_elements = int64_t{b.tokens} * b.heads * kIndexDim;
  const bool fp8 = b.keys == KeyFormat::fp8;
  WINNOW_TRY_ASSIGN(const DeviceBuffer q, DeviceBuffer::allocate("q", q_elements * (fp8 ? 1 : 2)));
  WINNOW_TRY_ASSIGN(const DeviceBuffer weight, DeviceBuffer::allocate("weight", int64_t{b.tokens} * b.heads * 4));
  WINNOW_TRY_ASSIGN(const DeviceBuffer keys, DeviceBuffer::allocate("keys", pages * page_bytes));
  WINNOW_TRY_ASSIGN(const DeviceBuffer out, DeviceBuffer::allocate("out", int64_t{b.tokens} * b.topk * 4));
  WINNOW_TRY(fill_normal_f32(weight.as<float>(), int64_t{b.tokens} * b.heads, 0.02f, seed + 1, stream));
  if (fp8) {  // both sides e4m3, as the serving engines store them
    WINNOW_TRY(fill_e4m3(q.data(), q_elements, seed, stream));
    WINNOW_TRY(fill_fp8_key_pages(keys.data(), pages, b.page_size, kIndexDim, page_bytes, seed + 2, stream));
  } else {
    WINNOW_TRY(fill_normal_bf16(q.data(), q_elements, 1.0f, seed, stream));
    WINNOW_TRY(fill_normal_bf16(keys.data(), keys.bytes() / 2, 1.0f, seed + 2, stream));
  }
  std::vector<int32_t> table(static_cast<std::size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(seed));
  std::vector<int32_t> seq(static_cast<std::size_t>(b.tokens), 0);
  if (!b.shared_context) std::iota(seq.begin(), seq.end(), 0);
  const std::vector<int32_t> len(static_cast<std::size_t>(b.tokens), static_cast<int32_t>(b.context));
  WINNOW_TRY_ASSIGN(const DeviceBuffer d_table, DeviceBuffer::upload("table", table.data(), std::ssize(table) * 4));
  WINNOW_TRY_ASSIGN(const DeviceBuffer d_seq, DeviceBuffer::upload("seq", seq.data(), std::ssize(seq) * 4));
  WINNOW_TRY_ASSIGN(const DeviceBuffer d_len, DeviceBuffer::upload("len", len.data(), std::ssize(len) * 4));

  const IndexSelectProblem problem{
      b.tokens, b.heads, kIndexDim, b.topk, b.page_size, b.context, b.keys, fp8 ? DType::e4m3 : DType::bf16, true};
  const winnow_select_problem p = c_problem(problem);
  winnow_select_buffers buffers{};
  buffers.struct_size = sizeof buffers;
  buffers.q = {q.data(), int64_t{b.heads} * kIndexDim, kIndexDim};
  buffers.weight = weight.as<float>();
  buffers.weight_stride = b.heads;
  buffers.keys = {keys.data(), pages, page_bytes};
  buffers.page_table = d_table.as<int32_t>();
  buffers.sequences = sequences;
  buffers.pages_per_sequence = pages_each;
  buffers.page_table_stride = pages_each;
  buffers.seq = d_seq.as<int32_t>();
  buffers.len = d_len.as<int32_t>();
  buffers.out = out.as<int32_t>();
  buffers.out_stride = b.topk;
  winnow_execution execution{};
  WINNOW_TRY_ASSIGN(const DeviceBuffer workspace, workspace_for(execution, [&p](int64_t* bytes) {
                      return winnow_index_select_workspace(&p, bytes);
                    }));
  BenchResult result;
  winnow_verdict verdict = empty_verdict();
  WINNOW_TRY(abi_status(winnow_index_select_admits(&p, nullptr, &verdict)));
  result.launch = describe_launch(verdict);
  WINNOW_TRY_ASSIGN(result.timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      execution.stream = s;
                      return abi_status(winnow_index_select(&p, &buffers, &execution));
                    }));
  const double scored = static_cast<double>(b.context) * b.tokens;
  result.bytes = static_cast<double>(pages * page_bytes) + static_cast<double>(q.bytes()) + 4.0 * b.tokens * b.topk;
  result.flop = 2.0 * scored * b.heads * kIndexDim;
  return result;
}

Result<BenchResult> bench_topk(const BenchCase& b, const TimingPlan& plan, uint64_t seed, cudaStream_t stream) {
  const int64_t elements = int64_t{b.tokens} * b.context;
  WINNOW_TRY_ASSIGN(const DeviceBuffer scores, DeviceBuffer::allocate("scores", elements * 4));
  WINNOW_TRY_ASSIGN(const DeviceBuffer out, DeviceBuffer::allocate("out", int64_t{b.tokens} * b.topk * 4));
  WINNOW_TRY(fill_normal_f32(scores.as<float>(), elements, 1.0f, seed, stream));
  WINNOW_TRY_ASSIGN(const DeviceInfo device, device_facts(0));
  const auto width = static_cast<int32_t>(b.context);
  WINNOW_TRY_ASSIGN(const DeviceBuffer workspace,
                    DeviceBuffer::allocate("workspace", cuda::topk_workspace_bytes(b.tokens, width, b.topk)));
  const cuda::TopkRows rows{.scores = scores.as<float>(),
                            .pitch = b.context,
                            .rows = b.tokens,
                            .width = width,
                            .topk = b.topk,
                            .out = out.as<int32_t>(),
                            .out_stride = b.topk};
  BenchResult result;
  WINNOW_TRY_ASSIGN(result.timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      return cuda::run_topk(rows, device, Execution{s, workspace.data(), workspace.bytes()});
                    }));
  result.bytes = 4.0 * static_cast<double>(elements) + 4.0 * b.tokens * b.topk;
  return result;
}

Result<BenchResult> bench_write(const BenchCase& b, const TimingPlan& plan, uint64_t seed, cudaStream_t stream) {
  const int64_t row = row_bytes(b.rows, kNope, b.d_rope);
  const int64_t page_bytes = key_page_bytes(b.keys, b.page_size, kIndexDim);
  const int64_t pages = (b.context + b.page_size - 1) / b.page_size;
  const int64_t wide = kNope + b.d_rope + kIndexDim;
  WINNOW_TRY_ASSIGN(const DeviceBuffer in, DeviceBuffer::allocate("activations", int64_t{b.tokens} * wide * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer cache, DeviceBuffer::allocate("cache", pages * b.page_size * row));
  WINNOW_TRY_ASSIGN(const DeviceBuffer keys, DeviceBuffer::allocate("keys", pages * page_bytes));
  WINNOW_TRY(fill_normal_bf16(in.data(), int64_t{b.tokens} * wide, 1.0f, seed, stream));
  BenchCase one_list = b;
  one_list.topk = b.tokens;  // as many different slots as tokens
  one_list.tokens = 1;
  const std::vector<int32_t> slots = random_slots(one_list, seed);
  WINNOW_TRY_ASSIGN(const DeviceBuffer d_slots, DeviceBuffer::upload("slots", slots.data(), std::ssize(slots) * 4));
  const CacheWriteProblem problem{b.tokens, kNope, b.d_rope, kIndexDim, b.page_size, b.rows, b.keys};
  const winnow_write_problem p = c_problem(problem);
  winnow_write_buffers buffers{};
  buffers.struct_size = sizeof buffers;
  buffers.latent = in.data();
  buffers.rope = in.data() + int64_t{b.tokens} * kNope * 2;
  buffers.key = in.data() + int64_t{b.tokens} * (kNope + b.d_rope) * 2;
  buffers.latent_stride = kNope;
  buffers.rope_stride = b.d_rope;
  buffers.key_stride = kIndexDim;
  buffers.slots = d_slots.as<int32_t>();
  buffers.cache = {cache.data(), pages, b.page_size * row, row};
  buffers.key_cache = {keys.data(), pages, page_bytes};
  BenchResult result;
  WINNOW_TRY_ASSIGN(result.timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      const winnow_execution execution{sizeof execution, s, nullptr, 0};
                      return abi_status(winnow_cache_write(&p, &buffers, &execution));
                    }));
  result.bytes = static_cast<double>(b.tokens) * static_cast<double>(2 * wide + row + page_bytes / b.page_size + 4);
  return result;
}

}  // namespace

const char* name_of(BenchOp op) {
  switch (op) {
    case BenchOp::mla: return "mla";
    case BenchOp::select: return "select";
    case BenchOp::topk: return "topk";
    case BenchOp::write: return "write";
  }
  return "?";
}

Result<BenchResult> run_bench(const BenchCase& bench, const TimingPlan& plan, uint64_t seed, cudaStream_t stream) {
  switch (bench.op) {
    case BenchOp::mla: return bench_mla(bench, plan, seed, stream);
    case BenchOp::select: return bench_select(bench, plan, seed, stream);
    case BenchOp::topk: return bench_topk(bench, plan, seed, stream);
    case BenchOp::write: return bench_write(bench, plan, seed, stream);
  }
  return error(StatusCode::internal, "no such operation");
}

}  // namespace winnow::kernels
