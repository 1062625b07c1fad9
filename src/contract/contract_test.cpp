// SPDX-License-Identifier: Apache-2.0
// The rules of check(), the oracle on problems that can be done by hand, and its own invariants.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "contract/oracle.hpp"
#include "contract/quantise.hpp"

namespace winnow {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Float rows of 32 elements, no rope, one page.
struct Small {
  explicit Small(int32_t tokens = 1, int32_t heads = 1, int32_t topk = 3, int32_t rows = 4)
      : pool(static_cast<std::size_t>(rows * 32)),
        q(static_cast<std::size_t>(tokens * heads * 32)),
        out(q.size()),
        lse(static_cast<std::size_t>(tokens * heads)),
        slots(static_cast<std::size_t>(tokens * topk)) {
    p = {.tokens = tokens,
         .q_heads = heads,
         .topk = topk,
         .page_size = rows,
         .d_nope = 32,
         .d_rope = 0,
         .d_v = 32,
         .softmax_scale = 1.0f,
         .rows = RowFormat::f32,
         .activations = DType::f32};
    b.q = {q.data(), int64_t{heads} * 32, 32};
    b.cache = {reinterpret_cast<std::byte*>(pool.data()), 1, rows * 128, 128};
    b.topk_slots = TensorView<const int32_t>(slots.data(), {tokens, topk});
    b.out = {out.data(), int64_t{heads} * 32, 32};
    b.lse = TensorView<float>(lse.data(), {tokens, heads});
  }
  std::vector<float> pool, q, out, lse;
  std::vector<int32_t> slots;
  SparseMlaProblem p;
  SparseMlaBuffers b;
};

TEST(Check, AcceptsWhatIsRight) {
  Small s;
  EXPECT_TRUE(check(s.p, s.b).ok()) << check(s.p, s.b).message();
}

TEST(Check, NamesTheFirstBrokenRuleOfMla) {
  const std::pair<const char*, std::function<void(Small&)>> rules[] = {
      {"tokens", [](Small& s) { s.p.tokens = -1; }},
      {"q_heads", [](Small& s) { s.p.q_heads = 129; }},
      {"q_heads", [](Small& s) { s.p.q_heads = 0; }},
      {"topk", [](Small& s) { s.p.topk = -1; }},
      {"page_size", [](Small& s) { s.p.page_size = 0; }},
      {"d_nope", [](Small& s) { s.p.d_nope = 33; }},
      {"d_rope", [](Small& s) { s.p.d_rope = -2; }},
      {"d_v", [](Small& s) { s.p.d_v = 33; }},
      {"softmax_scale", [](Small& s) { s.p.softmax_scale = NAN; }},
      {"activations", [](Small& s) { s.p.activations = DType::f16; }},
      {"q is missing", [](Small& s) { s.b.q.data = nullptr; }},
      {"cache.data is missing", [](Small& s) { s.b.cache.data = nullptr; }},
      {"cache.pages", [](Small& s) { s.b.cache.pages = -1; }},
      {"cache.row_stride_bytes", [](Small& s) { s.b.cache.row_stride_bytes = 124; }},
      {"cache.row_stride_bytes", [](Small& s) { s.b.cache.row_stride_bytes = 130; }},
      {"cache.page_stride_bytes", [](Small& s) { s.b.cache.pages = 2, s.b.cache.page_stride_bytes = 4 * 128 - 4; }},
      {"cache.data", [](Small& s) { s.b.cache.data += 2; }},
      {"topk_slots is missing", [](Small& s) { s.b.topk_slots.data = nullptr; }},
      {"topk_slots size 1", [](Small& s) { s.b.topk_slots.sizes[1] = 2; }},
      {"topk_slots stride of the last dimension", [](Small& s) { s.b.topk_slots.strides[1] = 2; }},
      {"out is missing", [](Small& s) { s.b.out.data = nullptr; }},
      {"lse size 1", [](Small& s) { s.b.lse.sizes[1] = 2; }},
  };
  for (const auto& [text, breaks] : rules) {
    Small s;
    breaks(s);
    const Status status = check(s.p, s.b);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << text;
    EXPECT_NE(status.message().find(text), std::string::npos) << text << " not in: " << status.message();
  }
}

TEST(Check, OverlappingOutputsAreRefusedAndRepeatedInputsAreNot) {
  Small s(2, 2);
  s.b.q.token_stride = 0;
  EXPECT_TRUE(check(s.p, s.b).ok());
  s.b.out.head_stride = 16;
  EXPECT_FALSE(check(s.p, s.b).ok());
  s.b.out = {s.out.data(), 32, 64};  // heads outside
  EXPECT_TRUE(check(s.p, s.b).ok());
}

TEST(Check, NothingToDoNeedsNoMemory) {
  SparseMlaProblem p{.tokens = 0, .q_heads = 1, .topk = 4, .page_size = 64, .d_nope = 32, .d_v = 32};
  EXPECT_TRUE(check(p, SparseMlaBuffers{}).ok());
  IndexSelectProblem select{.tokens = 0, .index_heads = 1, .index_dim = 8, .topk = 1, .page_size = 1};
  EXPECT_TRUE(check(select, IndexSelectBuffers{}).ok());
  CacheWriteProblem write{.tokens = 0, .d_nope = 32, .page_size = 1};
  EXPECT_TRUE(check(write, CacheWriteBuffers{}).ok());
}

TEST(Check, NamesTheFirstBrokenRuleOfSelection) {
  std::vector<float> q(8), weight(1);
  std::vector<std::byte> keys(4 * 16);
  std::vector<int32_t> numbers(8, 0);
  const auto good = [&] {
    IndexSelectProblem p{.tokens = 1,
                         .index_heads = 1,
                         .index_dim = 8,
                         .topk = 2,
                         .page_size = 4,
                         .max_len = 4,
                         .keys = KeyFormat::bf16,
                         .q_type = DType::f32};
    IndexSelectBuffers b;
    b.q = {q.data(), 8, 8};
    b.weight = TensorView<const float>(weight.data(), {1, 1});
    b.keys = {keys.data(), 1, 64};
    b.page_table = TensorView<const int32_t>(numbers.data(), {1, 1});
    b.seq = b.len = TensorView<const int32_t>(numbers.data(), {1});
    b.out = TensorView<int32_t>(numbers.data(), {1, 2});
    return std::pair(p, b);
  };
  {
    auto [p, b] = good();
    EXPECT_TRUE(check(p, b).ok()) << check(p, b).message();
  }
  const std::pair<const char*, std::function<void(IndexSelectProblem&, IndexSelectBuffers&)>> rules[] = {
      {"index_heads", [](auto& p, auto&) { p.index_heads = 65; }},
      {"topk", [](auto& p, auto&) { p.topk = 0; }},
      {"max_len", [](auto& p, auto&) { p.max_len = -1; }},
      {"page_table width", [](auto& p, auto&) { p.max_len = 5; }},
      {"q_type", [](auto& p, auto&) { p.q_type = DType::i32; }},
      {"weight", [](auto&, auto& b) { b.weight.data = nullptr; }},
      {"keys.data", [](auto&, auto& b) { b.keys.data = nullptr; }},
      {"keys.page_stride_bytes", [](auto&, auto& b) { b.keys.pages = 2, b.keys.page_stride_bytes = 62; }},
      {"len is missing", [](auto&, auto& b) { b.len.data = nullptr; }},
      {"out size 1", [](auto&, auto& b) { b.out.sizes[1] = 1; }},
  };
  for (const auto& [text, breaks] : rules) {
    auto [p, b] = good();
    breaks(p, b);
    EXPECT_NE(check(p, b).message().find(text), std::string::npos) << text << " not in: " << check(p, b).message();
  }
}

TEST(Oracle, TwoRowsByHand) {
  Small s;
  s.q[0] = 2.0f;
  s.pool[0] = 1.0f;   // row 0: score 2
  s.pool[32] = 0.5f;  // row 1: score 1
  s.pool[32 + 5] = 10.0f;
  s.slots = {0, -1, 1};
  const oracle::MlaResult result = oracle::sparse_mla(s.p, s.b);
  const double e = std::exp(1.0);
  EXPECT_NEAR(result.out[0], (e * 1.0 + 0.5) / (e + 1), 1e-15);
  EXPECT_NEAR(result.out[5], 10.0 / (e + 1), 1e-14);
  EXPECT_NEAR(result.lse[0], 2 + std::log(1 + 1 / e), 1e-15);
}

TEST(Oracle, AnEmptyRowIsZeroAndMinusInfinityAndDoesNotReadQ) {
  Small s;
  s.q[0] = NAN;
  s.slots = {-1, 4, std::numeric_limits<int32_t>::min()};
  const oracle::MlaResult result = oracle::sparse_mla(s.p, s.b);
  EXPECT_EQ(result.out[0], 0.0);
  EXPECT_EQ(result.lse[0], -std::numeric_limits<double>::infinity());
}

TEST(Oracle, ASinkTakesItsShareOfTheOutputAndNoneOfTheLse) {
  Small s;
  s.pool[0] = 1.0f;
  s.slots = {0, -1, -1};
  float sink = 0.0f;  // score 0, sink 0: half each
  s.b.sink = TensorView<const float>(&sink, {1});
  EXPECT_NEAR(oracle::sparse_mla(s.p, s.b).out[0], 0.5, 1e-15);
  EXPECT_EQ(oracle::sparse_mla(s.p, s.b).lse[0], 0.0);
  sink = kInf;
  EXPECT_EQ(oracle::sparse_mla(s.p, s.b).out[0], 0.0);
  sink = -kInf;
  EXPECT_EQ(oracle::sparse_mla(s.p, s.b).out[0], 1.0);
}

TEST(Oracle, ASlotListedTwiceCountsTwice) {
  Small s;
  s.pool[0] = 1.0f;
  s.pool[32] = 4.0f;
  s.slots = {0, 0, 1};
  EXPECT_NEAR(oracle::sparse_mla(s.p, s.b).out[0], (1 + 1 + 4) / 3.0, 1e-15);
}

TEST(Oracle, OrderPutsNaNLastAndLowerPositionsFirst) {
  EXPECT_TRUE(oracle::chosen_before(-INFINITY, 9, NAN, 0));
  EXPECT_FALSE(oracle::chosen_before(NAN, 0, -INFINITY, 9));
  EXPECT_TRUE(oracle::chosen_before(NAN, 0, NAN, 1));
  EXPECT_TRUE(oracle::chosen_before(0.0, 0, -0.0, 1));
  EXPECT_FALSE(oracle::chosen_before(0.0, 1, -0.0, 0));
  EXPECT_EQ(oracle::top_positions({1, 3, NAN, 3, 2}, 3), (std::vector<int64_t>{1, 3, 4}));
}

TEST(Quantise, ScalesFollowTheRules) {
  using enum ScaleMode;
  EXPECT_EQ(group_scale(0.0f, plain, QuantisedGroup::latent), std::numeric_limits<float>::min());
  EXPECT_EQ(group_scale(0.0f, power_of_two, QuantisedGroup::latent), 0x1p-13f);  // 1e-4 rounded up
  EXPECT_EQ(group_scale(0.0f, plain, QuantisedGroup::key), 1e-4f / 448.0f);
  EXPECT_EQ(group_scale(449.0f, power_of_two, QuantisedGroup::key), 2.0f);
  EXPECT_EQ(group_scale(3.5f, plain, QuantisedGroup::latent), 3.5f / 448.0f);
  EXPECT_EQ(widen_amax(2.0f, NAN), 2.0f);
  EXPECT_EQ(widen_amax(2.0f, -kInf), std::numeric_limits<float>::max());
}

TEST(Quantise, PowerOfTwoScalesNeverClip) {
  EXPECT_TRUE(rc::check([](uint32_t bits) {
    const float amax = std::abs(std::bit_cast<float>(bits & 0x7F7FFFFFu));
    RC_PRE(amax < 1e37f);  // 448 times the scale stays finite
    for (const QuantisedGroup group : {QuantisedGroup::latent, QuantisedGroup::key}) {
      const float scale = group_scale(amax, ScaleMode::power_of_two, group);
      int exponent = 0;
      RC_ASSERT(std::frexp(scale, &exponent) == 0.5f);
      RC_ASSERT(amax / scale <= 448.0f);
    }
  }));
}

TEST(Quantise, WriteThenGatherIsWithinHalfAStep) {
  constexpr int32_t kWidth = 256;
  std::vector<float> latent(kWidth);
  for (int32_t d = 0; d < kWidth; ++d)
    latent[static_cast<std::size_t>(d)] = std::sin(0.37f * static_cast<float>(d)) * 3;
  std::vector<std::byte> pool(static_cast<std::size_t>(row_bytes(RowFormat::v32_fp8, kWidth, 0) + 8));
  CacheWriteProblem p{.tokens = 1,
                      .d_nope = kWidth,
                      .page_size = 1,
                      .rows = RowFormat::v32_fp8,
                      .scale_mode = ScaleMode::plain,
                      .activations = DType::f32};
  CacheWriteBuffers b;
  const int32_t slot = 0;
  b.latent = latent.data();
  b.latent_stride = kWidth;
  b.slots = TensorView<const int32_t>(&slot, {1});
  b.cache = {pool.data(), 1, 264, 264};
  ASSERT_TRUE(check(p, b).ok()) << check(p, b).message();
  oracle::cache_write(p, b);
  RowGatherProblem gather{.slots = 1, .d_nope = kWidth, .page_size = 1, .rows = RowFormat::v32_fp8};
  const std::vector<float> back = oracle::row_gather(gather, {b.cache, b.slots, {}});
  // Three bits of fraction: half a step is a sixteenth of the value, or half a subnormal step of the scale.
  for (std::size_t d = 0; d < back.size(); ++d) {
    EXPECT_NEAR(back[d], latent[d], std::abs(latent[d]) / 16 + 3.0f / 448 * 0x1p-10f) << d;
  }
}

// Context parallel: two ranks over disjoint slots, merged, equal one over all of them.
TEST(Oracle, MergeOfHalvesEqualsTheWhole) {
  EXPECT_TRUE(rc::check([] {
    const auto topk = *rc::gen::inRange(1, 20);
    const auto cut = *rc::gen::inRange(0, topk + 1);
    Small whole(1, 2, topk, 24), first(1, 2, topk, 24), second(1, 2, topk, 24);
    for (float& x : whole.pool) x = static_cast<float>(*rc::gen::inRange(-100, 100)) * 0.01f;
    for (float& x : whole.q) x = static_cast<float>(*rc::gen::inRange(-100, 100)) * 0.02f;
    first.pool = second.pool = whole.pool;
    first.q = second.q = whole.q;
    for (int i = 0; i < topk; ++i) {
      const auto at = static_cast<std::size_t>(i);
      whole.slots[at] = *rc::gen::inRange(-1, 24);
      first.slots[at] = i < cut ? whole.slots[at] : -1;
      second.slots[at] = i < cut ? -1 : whole.slots[at];
    }
    const auto want = oracle::sparse_mla(whole.p, whole.b);
    const auto a = oracle::sparse_mla(first.p, first.b), b = oracle::sparse_mla(second.p, second.b);
    std::vector<float> outs(a.out.begin(), a.out.end()), lses(a.lse.begin(), a.lse.end());
    outs.insert(outs.end(), b.out.begin(), b.out.end());
    lses.insert(lses.end(), b.lse.begin(), b.lse.end());
    MergeProblem p{.parts = 2, .tokens = 1, .q_heads = 2, .d_v = 32};
    MergeBuffers buffers;
    buffers.part_out = TensorView<const float>(outs.data(), {2, 1, 2, 32});
    buffers.part_lse = TensorView<const float>(lses.data(), {2, 1, 2});
    std::vector<float> out(64);
    buffers.out = {out.data(), 64, 32};
    RC_ASSERT(check(p, buffers).ok());
    const auto got = oracle::merge(p, buffers);
    for (std::size_t i = 0; i < got.out.size(); ++i) RC_ASSERT(std::abs(got.out[i] - want.out[i]) < 1e-5);
    for (std::size_t i = 0; i < got.lse.size(); ++i) {
      RC_ASSERT(got.lse[i] == want.lse[i] || std::abs(got.lse[i] - want.lse[i]) < 1e-5);
    }
  }));
}

}  // namespace
}  // namespace winnow
