// SPDX-License-Identifier: Apache-2.0
#include "indexer/cuda/select_admit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/cache_write_admit.hpp"
#include "core/checked.hpp"

namespace winnow::cuda {
namespace {

DeviceInfo h200() {
  DeviceInfo d;
  d.kind = DeviceKind::cuda;
  d.sm = 90;
  d.units = 132;
  d.smem_per_block = 232448;
  d.smem_per_sm = 233472;
  return d;
}

DeviceInfo small_gpu() {  // the least that an SM since 8.0 offers
  DeviceInfo d = h200();
  d.sm = 86;
  d.units = 16;
  d.smem_per_block = 101376;
  d.smem_per_sm = 102400;
  return d;
}

IndexSelectProblem problem(int32_t tokens, int64_t max_len, int32_t topk = 2048) {
  IndexSelectProblem p;
  p.tokens = tokens;
  p.index_heads = 32;
  p.index_dim = kIndexDim;
  p.topk = topk;
  p.page_size = 64;
  p.max_len = max_len;
  p.keys = KeyFormat::fp8;
  return p;
}

bool refuses(const IndexSelectProblem& p, const DeviceInfo& device, const char* what) {
  const Verdict v = admits_select(p, device);
  return std::any_of(v.refusals.begin(), v.refusals.end(), [&](const Refusal& r) { return r.what == what; });
}

TEST(SelectAdmit, RefusesWhatTheKernelsCannotDo) {
  const auto with = [](auto change) {
    IndexSelectProblem p = problem(4, 1000);
    change(p);
    return p;
  };
  EXPECT_TRUE(admits_select(problem(0, 0), h200()).admitted());
  EXPECT_TRUE(refuses(with([](auto& p) { p.index_dim = 64; }), h200(), "index_dim"));
  EXPECT_TRUE(refuses(with([](auto& p) { p.index_heads = 65; }), h200(), "index_heads"));
  EXPECT_TRUE(refuses(with([](auto& p) { p.topk = 4097; }), h200(), "topk"));
  EXPECT_TRUE(refuses(with([](auto& p) { p.keys = KeyFormat::f32; }), h200(), "keys"));
  EXPECT_TRUE(refuses(with([](auto& p) { p.q_type = DType::f32; }), h200(), "q_type"));
  EXPECT_TRUE(refuses(with([](auto& p) { p.max_len = int64_t{200} << 20; }), h200(), "max_len"));
  DeviceInfo turing = h200();
  turing.sm = 75;
  EXPECT_TRUE(refuses(problem(4, 1000), turing, "sm"));
  DeviceInfo little = h200();
  little.smem_per_block = 48 << 10;
  EXPECT_TRUE(refuses(problem(4, 1000), little, "smem_per_block"));
}

TEST(SelectAdmit, EveryShapeFitsTheLeastGpu) {
  for (KeyFormat keys : {KeyFormat::bf16, KeyFormat::fp8}) {
    for (int32_t heads : {1, 8, 9, 16, 32, 33, 64}) {
      IndexSelectProblem p = problem(8, 1 << 20);
      p.keys = keys;
      p.index_heads = heads;
      const Verdict v = admits_select(p, small_gpu());
      ASSERT_TRUE(v.admitted()) << heads;
      EXPECT_LE(v.launch.shared_bytes, 99 * 1024);
      EXPECT_GE(v.launch.heads_per_block, heads);
    }
  }
}

TEST(SelectAdmit, WorkspaceIsCappedWhateverTheContext) {
  for (int64_t len : {0, 1, 2048, 32768, 32769, 131072, 1 << 20, 32 << 20}) {
    for (int32_t tokens : {1, 7, 64, 4096, 70000}) {
      const Verdict v = admits_select(problem(tokens, len), h200());
      ASSERT_TRUE(v.admitted());
      EXPECT_LE(v.launch.workspace_bytes, kSelectWorkspace);
      EXPECT_GT(v.launch.workspace_bytes, 0);
    }
  }
}

TEST(SelectAdmit, WorkspaceNeverShrinksWhenTheProblemGrows) {
  const auto bytes = [](int32_t tokens, int64_t len, int32_t topk) {
    return admits_select(problem(tokens, len, topk), h200()).launch.workspace_bytes;
  };
  for (int32_t topk : {1, 64, 2048, 4096}) {
    int64_t last = 0;
    for (int64_t len = 1; len <= (4 << 20); len = len + len / 3 + 1) {
      EXPECT_GE(bytes(64, len, topk), last) << len;
      last = bytes(64, len, topk);
    }
    for (int32_t tokens = 1; tokens < 5000; tokens = tokens * 2 + 1) {
      EXPECT_LE(bytes(tokens, 300000, topk), bytes(tokens + 1, 300000, topk));
    }
  }
}

TEST(SelectAdmit, RowsAndListsFitTheWorkspace) {
  for (int64_t len : {5, 4096, 40000, 131072, 524288, 600000, 1 << 20, 8 << 20}) {
    for (int32_t topk : {1, 5, 64, 2048, 3000, 4096}) {
      for (int32_t tokens : {1, 4, 64, 1024}) {
        for (int64_t budget : {kSelectWorkspace, int64_t{1} << 20, int64_t{0}}) {
          const SelectPlan plan = plan_select(problem(tokens, len, topk), h200(), budget);
          EXPECT_GE(plan.rows, 1);
          EXPECT_LE(plan.rows, tokens);
          EXPECT_GE(plan.pitch, len);
          EXPECT_LE(plan.rows * (plan.pitch * 4 + plan.list_entries * 8), plan.workspace_bytes);
        }
      }
    }
  }
}

// Entries that the lists of a plan take must stay within what plan_select reserves, and the last level within one CTA.
TEST(SelectAdmit, TreesEndAndStayWithinTheirLists) {
  for (int64_t width : {1, 8, 4097, 32768, 32769, 131072, 1 << 20, 5 << 20, 60 << 20}) {
    for (int32_t topk : {1, 5, 64, 2048, 3000, 4096}) {
      for (int32_t rows : {1, 4, 64, 4096}) {
        const TopkPlan plan = plan_topk(width, topk, rows, 132, false);
        ASSERT_GE(plan.levels, 1);
        int64_t lists = 0;
        for (int32_t l = 0; l < plan.levels; ++l) {
          const TopkLevel& level = plan.level[static_cast<std::size_t>(l)];
          EXPECT_GE(int64_t{level.keys_per_thread} * kTopkThreads * level.segments, level.entries);
          if (l + 1 < plan.levels) lists += level.segments * round_up(topk, kListAlign);
        }
        EXPECT_EQ(plan.level[static_cast<std::size_t>(plan.levels - 1)].segments, 1);
        EXPECT_LE(lists, list_entries_bound(width, topk)) << width << " " << topk;
      }
    }
  }
}

TEST(SelectAdmit, SplitRowsKeepTheirLimits) {
  int seen = 0;
  for (int64_t width = 32769; width <= 524288; width += 12345) {
    for (int32_t topk : {1, 64, 512, 2048}) {
      const TopkSplit split = plan_topk(width, topk, 4, 132).split;
      if (split.segments == 0) continue;
      ++seen;
      EXPECT_LE(split.segments, kSplitSegments);
      EXPECT_LE(split.segments * split.capacity, kSplitEntries);
      EXPECT_LE(split.segments * split.keys_per_thread * kTopkThreads / kSplitBlock, kSplitBlocks);
      EXPECT_GE(int64_t{split.segments} * split.keys_per_thread * kTopkThreads, width);
      EXPECT_GT(int64_t{split.segments} * split.rank, topk);
      EXPECT_GT(split.capacity, split.rank);
      EXPECT_LE(split.row_bytes, list_entries_bound(width, topk) * 8);
    }
  }
  EXPECT_GT(seen, 50);
}

TEST(CacheWriteAdmit, NamesWhatItLacks) {
  CacheWriteProblem p;
  p.tokens = 1;
  p.d_nope = 512;
  p.page_size = 64;
  EXPECT_TRUE(admits_write(p, h200()).admitted());
  p.rows = RowFormat::f32;
  p.index_dim = 128;
  p.keys = KeyFormat::f32;
  EXPECT_EQ(admits_write(p, h200()).refusals.size(), 2u);
}

}  // namespace
}  // namespace winnow::cuda
