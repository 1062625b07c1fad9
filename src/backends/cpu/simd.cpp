// SPDX-License-Identifier: Apache-2.0
// cpu.simd: how work is spread over threads. Outputs are divided, never summands, so a result is the same for any
// number of threads: MLA by token and block of heads; selection by block of tokens and, when there are few tokens, by
// range of positions, which an exact top-k may be cut by.
#include <algorithm>
#include <numeric>
#include <vector>

#include "backends/cpu/admission.hpp"
#include "backends/cpu/cpu_backends.hpp"
#include "backends/cpu/decode.hpp"
#include "backends/cpu/simd_kernels.hpp"
#include "core/threads.hpp"

namespace winnow {
namespace cpu {
namespace {

FloatScratch& thread_scratch() {
  thread_local FloatScratch scratch;
  return scratch;
}

// Rows of the valid slots of one token, in list order.
std::vector<const std::byte*>& valid_rows(const SparseMlaProblem& p, const SparseMlaBuffers& b, int64_t token) {
  thread_local std::vector<const std::byte*> rows;
  rows.clear();
  const int64_t listed = b.topk_len.empty() ? p.topk : std::clamp(b.topk_len(token), 0, p.topk);
  for (int64_t i = 0; i < listed; ++i) {
    const std::byte* row = row_of(b.cache, p.page_size, b.topk_slots(token, i));
    if (row != nullptr) rows.push_back(row);
  }
  return rows;
}

Status run_mla(const Backend& backend, const SparseMlaProblem& p, const SparseMlaBuffers& b, const DeviceInfo& device,
               const Execution&) {
  WINNOW_TRY(refused(backend.name, admits_mla(backend, p, device)));
  WINNOW_TRY(check(p, b));
  // Blocks of heads only when tokens alone do not feed the threads: each block decodes the token's rows again.
  const int64_t wanted = p.tokens == 0 ? 1 : ceil_div(threads(), p.tokens);
  const int64_t blocks = std::clamp<int64_t>(wanted, 1, std::max(1, p.q_heads / 4));
  const int64_t heads = round_up(ceil_div(p.q_heads, blocks), 4);
  const int64_t used_blocks = ceil_div(p.q_heads, heads);
  const int64_t grain = std::clamp<int64_t>(p.tokens * used_blocks / (4 * threads()), 1, 8);
  parallel_for(p.tokens * used_blocks, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t token = item / used_blocks, block = item % used_blocks;
      attend({.problem = &p,
              .buffers = &b,
              .token = token,
              .head_begin = static_cast<int32_t>(block * heads),
              .head_end = static_cast<int32_t>(std::min<int64_t>(p.q_heads, (block + 1) * heads)),
              .rows = valid_rows(p, b, token),
              .scratch = &thread_scratch()});
    }
  });
  return Status();
}

// Tokens that really select, one after the other in one sequence.
struct Block {
  int64_t sequence = 0;
  std::vector<IndexToken> tokens;
};

class Selection {
 public:
  Selection(const IndexSelectProblem& p, const IndexSelectBuffers& b) : p_(p), b_(b) {
    block_tokens_ = std::clamp<int64_t>(ceil_div(p.tokens, threads()), kFewTokens, kManyTokens);
    for (int64_t t = 0; t < p.tokens; ++t) add(t);
  }

  void run() {
    const auto blocks = static_cast<int64_t>(blocks_.size());
    if (blocks == 0) return;
    const int64_t segments = std::clamp<int64_t>(ceil_div(threads(), blocks), 1, kMostSegments);
    if (segments == 1) {
      parallel_for(blocks, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) run_whole(blocks_[static_cast<std::size_t>(i)]);
      });
    } else {
      for (Block& block : blocks_) run_segmented(block, threads());
    }
  }

 private:
  static constexpr int64_t kFewTokens = 8, kManyTokens = 32;  // that share the decoding of a key
  static constexpr int64_t kMostSegments = 64;
  static constexpr int64_t kSegmentPositions = 1024;  // below that a second thread costs more than it brings

  void add(int64_t t) {
    const int64_t sequence = b_.seq(t);
    if (b_.page_table.rank != 2 || sequence < 0 || sequence >= b_.page_table.size(0)) return write(t, {});
    const int64_t start = b_.start.empty() ? 0 : b_.start(t);
    const int64_t first = std::clamp<int64_t>(start, 0, p_.max_len);
    const int64_t last = std::clamp<int64_t>(start + b_.len(t), first, p_.max_len);
    if (last - first <= p_.topk) return write_all(t, first, last);
    const bool fits = !blocks_.empty() && blocks_.back().sequence == sequence &&
                      static_cast<int64_t>(blocks_.back().tokens.size()) < block_tokens_;
    if (!fits) blocks_.push_back({sequence, {}});
    blocks_.back().tokens.push_back({t, first, last, nullptr});
  }

  [[nodiscard]] static std::pair<int64_t, int64_t> range_of(const Block& block) {
    int64_t begin = block.tokens[0].first, end = 0;
    for (const IndexToken& token : block.tokens) {
      begin = std::min(begin, token.first);
      end = std::max(end, token.last);
    }
    return {begin, end};
  }

  void run_whole(Block& block) {
    thread_local std::vector<RunningTopK> selectors;
    if (selectors.size() < block.tokens.size()) selectors.resize(block.tokens.size());
    const auto [begin, end] = range_of(block);
    score(block, selectors.data(), begin, end);
    for (std::size_t i = 0; i < block.tokens.size(); ++i) write(block.tokens[i].token, selectors[i].finish());
  }

  // Each segment selects among its own positions; the winners of all segments then compete.
  void run_segmented(Block& block, int64_t most) {
    const auto [begin, end] = range_of(block);
    const int64_t segments = std::clamp<int64_t>((end - begin) / kSegmentPositions, 1, most);
    const int64_t share = ceil_div(end - begin, segments);
    const std::size_t tokens = block.tokens.size();
    thread_local std::vector<RunningTopK> selectors;
    if (selectors.size() < tokens * static_cast<std::size_t>(segments)) {
      selectors.resize(tokens * static_cast<std::size_t>(segments));
    }
    RunningTopK* mine = selectors.data();  // of this thread; a lambda would see the workers' own
    const int64_t first = begin, last = end;
    parallel_for(segments, 1, [&, mine](int64_t from, int64_t to, int) {
      for (int64_t s = from; s < to; ++s) {
        Block part = block;
        score(part, mine + s * static_cast<int64_t>(tokens), first + s * share,
              std::min(last, first + (s + 1) * share));
      }
    });
    for (std::size_t i = 0; i < tokens; ++i) {
      for (int64_t s = 1; s < segments; ++s) mine[i].push(mine[static_cast<std::size_t>(s) * tokens + i]);
      write(block.tokens[i].token, mine[i].finish());
    }
  }

  void score(Block& block, RunningTopK* selectors, int64_t begin, int64_t end) const {
    for (std::size_t i = 0; i < block.tokens.size(); ++i) {
      selectors[i].reset(p_.topk);
      block.tokens[i].selector = &selectors[i];
    }
    score_positions({.problem = &p_,
                     .buffers = &b_,
                     .sequence = block.sequence,
                     .tokens = block.tokens,
                     .begin = begin,
                     .end = end,
                     .scratch = &thread_scratch()});
  }

  void write_all(int64_t token, int64_t first, int64_t last) const {
    std::vector<int32_t> positions(static_cast<std::size_t>(last - first));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    write(token, positions);
  }

  void write(int64_t token, std::span<const int32_t> positions) const {
    int32_t* out = b_.out.row(token);
    const auto count = static_cast<int64_t>(positions.size());
    for (int64_t i = 0; i < count; ++i) {
      const int32_t position = positions[static_cast<std::size_t>(i)];
      out[i] = p_.output_slots ? slot_of(token, position) : position;
    }
    std::fill(out + count, out + p_.topk, -1);
    if (!b_.out_len.empty()) b_.out_len(token) = static_cast<int32_t>(count);
  }

  [[nodiscard]] int32_t slot_of(int64_t token, int32_t position) const {
    const int64_t page = b_.page_table(b_.seq(token), position / p_.page_size);
    return page < 0 || page >= b_.keys.pages ? -1 : static_cast<int32_t>(page * p_.page_size + position % p_.page_size);
  }

  const IndexSelectProblem& p_;
  const IndexSelectBuffers& b_;
  int64_t block_tokens_ = kFewTokens;
  std::vector<Block> blocks_;
};

Status run_select(const Backend& backend, const IndexSelectProblem& p, const IndexSelectBuffers& b,
                  const DeviceInfo& device, const Execution&) {
  WINNOW_TRY(refused(backend.name, admits_select(backend, p, device)));
  WINNOW_TRY(check(p, b));
  Selection(p, b).run();
  return Status();
}

Verdict admits_mla_simd(const Backend& backend, const SparseMlaProblem& p, const DeviceInfo& device) {
  Verdict verdict = admits_mla(backend, p, device);
  if (!device.described) verdict.launch.note = simd_target_name();
  return verdict;
}

}  // namespace
}  // namespace cpu

const Backend& cpu_simd_backend() {
  static const Backend backend{.name = "cpu.simd",
                               .kind = DeviceKind::cpu,
                               .admits_mla = cpu::admits_mla_simd,
                               .run_mla = cpu::run_mla,
                               .admits_select = cpu::admits_select,
                               .run_select = cpu::run_select,
                               .admits_write = cpu::admits_write,
                               .run_write = cpu::run_write};
  return backend;
}

}  // namespace winnow
