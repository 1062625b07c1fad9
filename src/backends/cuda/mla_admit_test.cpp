// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/mla_admit.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

namespace winnow::cuda {
namespace {

DeviceInfo gpu(int32_t sm, int32_t units, int64_t block_kb, int64_t sm_kb) {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = "a GPU";
  device.sm = sm;
  device.units = units;
  device.smem_per_block = block_kb * 1024;
  device.smem_per_sm = sm_kb * 1024;
  return device;
}
DeviceInfo h200() { return gpu(90, 132, 227, 228); }
DeviceInfo a100() { return gpu(80, 108, 163, 164); }
DeviceInfo rtx_pro_6000() { return gpu(120, 188, 99, 100); }

SparseMlaProblem problem(int32_t tokens, int32_t heads, RowFormat rows = RowFormat::bf16) {
  return {.tokens = tokens,
          .q_heads = heads,
          .topk = 2048,
          .page_size = 64,
          .d_nope = 512,
          .d_rope = 64,
          .d_v = 512,
          .rows = rows};
}
std::string tile_on(const DeviceInfo& device, int32_t heads, RowFormat rows = RowFormat::bf16) {
  const MlaPlan plan = plan_mla(problem(64, heads, rows), device);
  return plan.tile ? plan.tile->name : "none";
}

TEST(MlaAdmit, NothingToDoIsAdmittedAndWantsNoWorkspace) {
  SparseMlaProblem none = problem(0, 8);
  EXPECT_TRUE(admits_mla(none, h200()).admitted());
  EXPECT_EQ(admits_mla(none, h200()).launch.workspace_bytes, 0);
  SparseMlaProblem empty_lists = problem(1, 8);
  empty_lists.topk = 0;
  const Verdict v = admits_mla(empty_lists, h200());
  EXPECT_TRUE(v.admitted());
  EXPECT_EQ(v.launch.splits, 1);
}

TEST(MlaAdmit, ARefusalNamesEveryReason) {
  SparseMlaProblem p = problem(1, 129);
  p.d_nope = 256, p.d_rope = 32, p.d_v = 100, p.topk = 5000, p.activations = DType::f32, p.rows = RowFormat::f32;
  const Verdict v = admits_mla(p, gpu(75, 40, 64, 64));
  std::string reasons;
  for (const Refusal& r : v.refusals) reasons += r.what + ' ';
  EXPECT_EQ(reasons, "sm activations rows d_nope d_rope d_v q_heads topk ");
}

TEST(MlaAdmit, ACpuIsRefusedAtOnce) {
  const Verdict v = admits_mla(problem(1, 8), DeviceInfo{});
  ASSERT_EQ(v.refusals.size(), 1u);
  EXPECT_EQ(v.refusals[0].what, "device");
}

TEST(MlaAdmit, LessThan99KilobytesIsARefusalOfTheTile) {
  const Verdict v = admits_mla(problem(1, 64), gpu(89, 58, 64, 65));
  ASSERT_EQ(v.refusals.size(), 1u);
  EXPECT_EQ(v.refusals[0].found, "64 KB");
}

TEST(MlaAdmit, TileFollowsHeadsAndSharedMemory) {
  EXPECT_EQ(tile_on(h200(), 1), "bf16.h8.wide");
  EXPECT_EQ(tile_on(h200(), 9), "bf16.h16.wide");
  EXPECT_EQ(tile_on(h200(), 24), "bf16.h32.wide");
  EXPECT_EQ(tile_on(h200(), 33), "bf16.h64.wgmma");
  EXPECT_EQ(tile_on(h200(), 64, RowFormat::v32_fp8), "fp8.h64.overlapped");
  EXPECT_EQ(tile_on(gpu(100, 148, 227, 228), 64), "bf16.h64.overlapped");
  EXPECT_EQ(tile_on(a100(), 8), "bf16.h8");
  EXPECT_EQ(tile_on(a100(), 64), "bf16.h64");
  for (const int32_t heads : {8, 16, 32, 64}) {
    EXPECT_EQ(tile_on(rtx_pro_6000(), heads), "bf16.h" + std::to_string(heads));
    EXPECT_EQ(tile_on(rtx_pro_6000(), heads, RowFormat::v32_fp8), "fp8.h" + std::to_string(heads));
  }
}

TEST(MlaAdmit, AFewTokensAreSpreadOverTheMachine) {
  const auto tile = [](const SparseMlaProblem& p, const DeviceInfo& device) {
    return std::string(plan_mla(p, device).tile->name);
  };
  EXPECT_EQ(tile(problem(1, 8), h200()), "bf16.h8.spread");
  EXPECT_EQ(tile(problem(1, 64, RowFormat::v32_fp8), h200()), "fp8.h8.spread");
  EXPECT_EQ(tile(problem(8, 8), h200()), "bf16.h8.spread");
  EXPECT_EQ(tile(problem(9, 8), h200()), "bf16.h8.wide");
  EXPECT_EQ(tile(problem(2, 33), h200()), "bf16.h64.wgmma");
  EXPECT_EQ(tile(problem(1, 8), rtx_pro_6000()), "bf16.h8.spread");
  EXPECT_EQ(tile(problem(6, 8), rtx_pro_6000()), "bf16.h8");  // 41 KB each: two find a seat on an SM
  SparseMlaProblem p = problem(1, 8);
  EXPECT_EQ(plan_mla(p, h200()).splits, 64);
  p.topk = 2049;  // 65 tiles: the merge takes 64 splits, one of them with two tiles
  EXPECT_EQ(tile(p, h200()), "bf16.h8.spread.long");
  EXPECT_EQ(plan_mla(p, h200()).splits, 64);
  p.topk = 32;
  EXPECT_EQ(plan_mla(p, h200()).splits, 1);
}

TEST(MlaAdmit, HeadsAbove64StandSideBySide) {
  EXPECT_EQ(plan_mla(problem(40, 64), h200()).head_blocks, 1);
  EXPECT_EQ(plan_mla(problem(40, 65), h200()).head_blocks, 2);
  EXPECT_EQ(plan_mla(problem(40, 128), h200()).head_blocks, 2);
  EXPECT_EQ(plan_mla(problem(1, 33), h200()).head_blocks, 5);  // spread: eight heads a block
}

TEST(MlaAdmit, SplitsFillTheMachineAndPrefillHasNone) {
  EXPECT_GE(plan_mla(problem(1, 64), h200()).splits, 16);
  EXPECT_EQ(plan_mla(problem(64, 64), h200()).splits, 2);
  EXPECT_EQ(plan_mla(problem(256, 64), h200()).splits, 1);
  EXPECT_EQ(plan_mla(problem(4096, 8), h200()).splits, 1);
  EXPECT_EQ(plan_mla(problem(4096, 8), h200()).workspace_bytes, 0);
}

TEST(MlaAdmit, EveryPlanFitsItsDeviceAndItsGrid) {
  EXPECT_TRUE(rc::check([] {
    const DeviceInfo device = *rc::gen::element(h200(), a100(), rtx_pro_6000(), gpu(86, 82, 99, 100));
    SparseMlaProblem p = problem(*rc::gen::inRange(1, 100000), *rc::gen::inRange(1, 129));
    p.topk = *rc::gen::inRange(0, 4097);
    if (*rc::gen::arbitrary<bool>()) p.rows = RowFormat::v32_fp8;
    const MlaPlan plan = plan_mla(p, device);
    RC_ASSERT(plan.tile != nullptr);
    RC_ASSERT(plan.shared_bytes <= device.smem_per_block);
    RC_ASSERT(plan.head_blocks * heads_of(*plan.tile) >= p.q_heads);
    RC_ASSERT(plan.splits >= 1 && plan.splits <= (plan.tile->spread ? kMostSplits : kMaxSplits));
    RC_ASSERT((plan.splits - 1) * plan.tile->tile_rows <= p.topk);  // never more splits than tiles
    const int64_t blocks = int64_t{p.tokens} * plan.head_blocks * plan.splits;
    const int64_t floats = blocks * heads_of(*plan.tile) * (512 + 2);
    RC_ASSERT(plan.workspace_bytes == (plan.splits == 1 ? 0 : floats * 4));
    const Verdict v = admits_mla(p, device);
    RC_ASSERT(v.admitted());
    RC_ASSERT(v.launch.workspace_bytes == plan.workspace_bytes && v.launch.splits == plan.splits);
  }));
}

}  // namespace
}  // namespace winnow::cuda
