// SPDX-License-Identifier: Apache-2.0
// What the conformance cases cannot say about the CPU backends: results do not depend on threads, on the instruction
// set's blocking, on how a step is cut, nor on where pages lie; and selection of everything is the dense answer.
#include "backends/cpu/cpu_backends.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <numeric>

#include "backends/cpu/simd_kernels.hpp"
#include "conformance/case.hpp"
#include "conformance/mla_case.hpp"
#include "conformance/select_case.hpp"
#include "core/threads.hpp"
#include "hwy/targets.h"

namespace winnow {
namespace {
using conformance::build_case;
using conformance::HostBackend;
using conformance::Outcome;
using conformance::parse_cases;

const DeviceInfo kCpu{.kind = DeviceKind::cpu, .name = "host"};

std::unique_ptr<conformance::Case> make(const std::string& line) {
  return build_case(parse_cases(line, "test").value().at(0)).value();
}

std::vector<std::byte> output_bytes(conformance::Case& test) {
  HostBackend backend(cpu_simd_backend(), kCpu);
  const Outcome outcome = test.run(backend);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.text;
  std::vector<std::byte> bytes;
  for (const auto& block : test.image().blocks()) {
    if (block.role != conformance::Role::input) bytes.insert(bytes.end(), block.data(), block.data() + block.bytes);
  }
  return bytes;
}

struct WithThreads {
  explicit WithThreads(int count) : before(threads()) { set_threads(count); }
  ~WithThreads() { set_threads(before); }
  int before;
};

const char* const kLines[] = {
    "mla heads=16 topk=200 tokens=1 rows=bf16",
    "mla heads=64 topk=130 tokens=3 rows=v32_fp8 act=f32",
    "mla heads=5 topk=100 tokens=40 rows=f32 act=f32",
    "mla heads=128 topk=70 tokens=2 list=mixed sink=per_head",
    "select len=9000 topk=256 tokens=1 heads=8 keys=bf16",
    "select len=prefill tokens=70 sequences=1 topk=64 heads=8 keys=f32 q_type=f32",
    "select len=5000 tokens=3 topk=64 heads=3 keys=fp8",
    "write tokens=300 rows=v32_fp8 keys=fp8",
};

TEST(CpuSimd, TheSameBitsWithAnyNumberOfThreads) {
  for (const char* line : kLines) {
    const auto test = make(line);
    const WithThreads one(1);
    const std::vector<std::byte> want = output_bytes(*test);
    for (int count : {2, 3, 7}) {
      const WithThreads many(count);
      EXPECT_EQ(output_bytes(*test), want) << line << " with " << count << " threads";
    }
  }
}

TEST(CpuSimd, TheSameBitsTwentyTimes) {
  const WithThreads many(4);
  for (const char* line : {kLines[0], kLines[4]}) {
    const auto test = make(line);
    const std::vector<std::byte> want = output_bytes(*test);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(output_bytes(*test), want) << line;
  }
}

// Every instruction set that this machine has passes the same cases, not only the one that dispatch prefers.
TEST(CpuSimd, EveryInstructionSetOfThisMachineIsRight) {
  const int64_t all = hwy::SupportedTargets();
  int tried = 0;
  for (int64_t left = all; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    ++tried;
    for (const std::string line :
         {"mla heads=1,4,7,16 topk=67 tokens=2 rows=f32,bf16,v32_fp8 act=f32", "mla list=mixed,wild tokens=4 heads=5",
          "mla geometry=96+32 d_v=50 heads=3", "mla values=edges,wide rows=v32_fp8 geometry=512+64",
          "mla q=nan_head,inf_head", "mla scores=huge,peaky act=f32 rows=f32",
          "select heads=1,3,8,11 keys=f32,bf16,fp8 q_type=f32 len=300", "select dim=20,128 heads=5 keys=bf16 len=200",
          "select scores=sawtooth,nan,border len=500 keys=f32,fp8 heads=8",
          "select pages=damaged scores=sawtooth len=500"}) {
      const auto specs = parse_cases(line, "test");
      for (const auto& spec : *specs) {
        HostBackend backend(cpu_simd_backend(), kCpu);
        conformance::Target* targets[] = {&backend};
        const auto tally = run_case(spec, targets, [&](const conformance::Finding& finding) {
          ADD_FAILURE() << hwy::TargetName(target) << " " << finding.name << ": " << finding.text;
        });
        EXPECT_EQ(tally.passed, 1);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GE(tried, 2);
  std::cout << tried << " instruction sets, chosen: " << cpu::simd_target_name() << "\n";
}

TEST(CpuBackends, RefuseOtherDevicesWithReasons) {
  const DeviceInfo gpu{.kind = DeviceKind::cuda, .name = "h200"};
  for (const Backend* backend : {&cpu_simd_backend(), &cpu_reference_backend()}) {
    SparseMlaProblem p{.tokens = 1, .q_heads = 200, .topk = 1, .page_size = 64, .d_nope = 512, .d_v = 512};
    const Verdict verdict = backend->admits_mla(*backend, p, gpu);
    ASSERT_EQ(verdict.refusals.size(), 2u);  // every reason, not the first
    EXPECT_EQ(verdict.refusals[0].found, "h200");
    EXPECT_EQ(verdict.refusals[1].found, "200");
    const Status status = backend->run_mla(*backend, p, {}, gpu, {});
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_NE(status.message().find("q_heads: wants 1 to 128, has 200"), std::string::npos) << status.message();
  }
}

TEST(CpuBackends, ReportBrokenBuffers) {
  for (const Backend* backend : {&cpu_simd_backend(), &cpu_reference_backend()}) {
    SparseMlaProblem p{.tokens = 1, .q_heads = 2, .topk = 1, .page_size = 64, .d_nope = 512, .d_v = 512};
    EXPECT_EQ(backend->run_mla(*backend, p, {}, kCpu, {}).code(), StatusCode::invalid_argument);
  }
}

// A list in ascending order is what dense attention reads: an index list that keeps everything gives the same bits.
TEST(CpuSimd, SelectingEverythingIsTheDenseAnswerBitForBit) {
  const auto test = make("mla heads=4 topk=100 tokens=1 act=f32 rows=bf16 list=ascending");
  auto& mla = dynamic_cast<conformance::MlaCase&>(*test);
  const std::vector<std::byte> dense = output_bytes(*test);
  std::vector<int32_t> padded(2048, -1);  // as a selector writes it: everything ascending, then -1
  std::copy(mla.buffers.topk_slots.row(0), mla.buffers.topk_slots.row(0) + 100, padded.begin());
  mla.problem.topk = 2048;
  mla.buffers.topk_slots = TensorView<const int32_t>(padded.data(), {1, 2048});
  EXPECT_EQ(output_bytes(*test), dense);
}

// Chunks of a prefill: each token alone selects what it selects among others.
TEST(CpuSimd, SelectionDoesNotDependOnHowAStepIsCut) {
  const auto test = make("select len=prefill tokens=70 sequences=1 topk=64 heads=8 keys=bf16");
  auto& select = dynamic_cast<conformance::SelectCase&>(*test);
  const auto run = [&](int32_t first, int32_t count, std::vector<int32_t>& out) {
    IndexSelectProblem p = select.problem;
    IndexSelectBuffers b = select.buffers;
    p.tokens = count;
    b.q.data = static_cast<std::byte*>(b.q.data) + first * b.q.token_stride * bytes_of(p.q_type);
    b.weight = TensorView<const float>(b.weight.row(first), {count, p.index_heads});
    b.seq = TensorView<const int32_t>(b.seq.row(first), {count});
    b.len = TensorView<const int32_t>(b.len.row(first), {count});
    b.out = TensorView<int32_t>(out.data() + first * p.topk, {count, p.topk});
    b.out_len = {};
    const Backend& backend = cpu_simd_backend();
    ASSERT_TRUE(backend.run_select(backend, p, b, kCpu, {}).ok());
  };
  std::vector<int32_t> whole(70 * 64), cut(70 * 64);
  run(0, 70, whole);
  for (int32_t step : {1, 9, 33}) {
    for (int32_t t = 0; t < 70; t += step) run(t, std::min(step, 70 - t), cut);
    EXPECT_EQ(cut, whole) << step;
  }
}

// Where pages lie is nobody's business: move them, and the same positions are read and the same values come out.
TEST(CpuSimd, PermutingPagesChangesNothing) {
  EXPECT_TRUE(rc::check([] {
    const int32_t page_size = *rc::gen::element(1, 4, 16);
    const int64_t pages = *rc::gen::inRange<int64_t>(1, 12);
    const int32_t tokens = 2, heads = 3, topk = static_cast<int32_t>(std::min<int64_t>(20, pages * page_size));
    std::vector<int32_t> place(static_cast<std::size_t>(pages));
    std::iota(place.begin(), place.end(), 0);
    for (std::size_t i = place.size(); i > 1; --i) {
      std::swap(place[i - 1], place[static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(i)))]);
    }
    conformance::Random random(static_cast<uint64_t>(*rc::gen::inRange(0, 1000)));
    constexpr int64_t kWidth = 96;
    std::vector<float> straight(static_cast<std::size_t>(pages * page_size * kWidth)), moved(straight.size());
    for (float& x : straight) x = random.normal();
    const auto page_floats = static_cast<std::ptrdiff_t>(page_size * kWidth);
    for (std::size_t i = 0; i < place.size(); ++i) {
      std::copy_n(straight.begin() + static_cast<std::ptrdiff_t>(i) * page_floats, page_floats,
                  moved.begin() + place[i] * page_floats);
    }
    std::vector<float> q(static_cast<std::size_t>(tokens * heads * kWidth));
    for (float& x : q) x = random.normal();
    SparseMlaProblem p{.tokens = tokens,
                       .q_heads = heads,
                       .topk = topk,
                       .page_size = page_size,
                       .d_nope = 64,
                       .d_rope = 32,
                       .d_v = 64,
                       .softmax_scale = 0.1f,
                       .rows = RowFormat::f32,
                       .activations = DType::f32};
    std::vector<int32_t> slots, moved_slots;
    for (int32_t i = 0; i < tokens * topk; ++i) {
      const auto slot = static_cast<int32_t>(random.below(pages * page_size));
      slots.push_back(slot);
      moved_slots.push_back(place[static_cast<std::size_t>(slot / page_size)] * page_size + slot % page_size);
    }
    const auto run = [&](std::vector<float>& pool, const std::vector<int32_t>& list) {
      std::vector<float> out(static_cast<std::size_t>(tokens * heads * 64));
      SparseMlaBuffers b;
      b.q = {q.data(), heads * kWidth, kWidth};
      b.cache = {reinterpret_cast<std::byte*>(pool.data()), pages, page_size * kWidth * 4, kWidth * 4};
      b.topk_slots = TensorView<const int32_t>(list.data(), {tokens, topk});
      b.out = {out.data(), heads * 64, 64};
      const Backend& backend = cpu_simd_backend();
      RC_ASSERT(backend.run_mla(backend, p, b, kCpu, {}).ok());
      return out;
    };
    RC_ASSERT(run(straight, slots) == run(moved, moved_slots));
  }));
}

}  // namespace
}  // namespace winnow
