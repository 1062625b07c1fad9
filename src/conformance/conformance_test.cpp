// SPDX-License-Identifier: Apache-2.0
// Tests of the tests: the parser of cases, the traps around memory, and that wrong results are noticed. Each mutation
// is a mistake that real kernels have made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "conformance/merge_case.hpp"
#include "conformance/mla_case.hpp"
#include "conformance/select_case.hpp"
#include "conformance/write_case.hpp"

namespace winnow::conformance {
namespace {

CaseSpec spec_of(const std::string& line) {
  auto cases = parse_cases(line, "test");
  EXPECT_TRUE(cases.ok()) << cases.status().message();
  EXPECT_EQ(cases->size(), 1u);
  return cases->at(0);
}

// Runs the oracle on (possibly damaged) buffers and stores its result as a backend would.
class OracleTarget : public Target {
 public:
  using Damage = std::function<void(const SparseMlaProblem&, SparseMlaBuffers&)>;
  explicit OracleTarget(Damage damage = {}) : damage_(std::move(damage)) {}
  [[nodiscard]] std::string name() const override { return "oracle"; }

  Outcome run(const SparseMlaProblem& p, const SparseMlaBuffers& given, Image&) override {
    SparseMlaBuffers b = given;
    std::vector<int32_t> slots;
    for (int64_t t = 0; t < p.tokens; ++t) {
      slots.insert(slots.end(), b.topk_slots.row(t), b.topk_slots.row(t) + p.topk);
    }
    list_ = slots;
    b.topk_slots = TensorView<const int32_t>(list_.data(), {p.tokens, p.topk});
    pool_.assign(b.cache.data, b.cache.data + b.cache.pages * b.cache.page_stride_bytes);
    b.cache.data = pool_.data();
    if (damage_) damage_(p, b);
    const oracle::MlaResult result = oracle::sparse_mla(p, b);
    for (int64_t t = 0; t < p.tokens; ++t) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        const int64_t row = t * p.q_heads + h;
        for (int64_t d = 0; d < p.d_v; ++d) {
          store_element(b.out, p.activations, t * b.out.token_stride + h * b.out.head_stride + d,
                        static_cast<float>(result.out[static_cast<std::size_t>(row * p.d_v + d)]));
        }
        if (!b.lse.empty()) b.lse(t, h) = static_cast<float>(result.lse[static_cast<std::size_t>(row)]);
      }
    }
    return ran();
  }

  std::vector<int32_t> list_;
  std::vector<std::byte> pool_;

 private:
  Damage damage_;
};

std::string judge_mla(const std::string& line, OracleTarget::Damage damage = {}) {
  auto built = build_case(spec_of(line));
  EXPECT_TRUE(built.ok()) << built.status().message();
  OracleTarget target(std::move(damage));
  EXPECT_EQ((*built)->run(target).kind, Outcome::Kind::ran);
  return (*built)->judge(target);
}

// The lists are damaged in the copy that OracleTarget made.
int32_t* list_of(SparseMlaBuffers& b) { return const_cast<int32_t*>(b.topk_slots.data); }

const char* const kBigCases[] = {"mla heads=8 topk=2048 tokens=2 rows=bf16",
                                 "mla heads=8 topk=2048 tokens=2 rows=v32_fp8",
                                 "mla heads=4 topk=2048 tokens=2 rows=f32 act=f32"};

TEST(Mutation, TheOracleItselfPasses) {
  for (const char* line : kBigCases) EXPECT_EQ(judge_mla(line), "") << line;
  EXPECT_EQ(judge_mla("mla list=mixed q=nan_empty sink=per_head tokens=5"), "");
  EXPECT_EQ(judge_mla("mla rows=v32_fp8 values=wide strides=padded tokens=3"), "");
}

TEST(Mutation, DroppingOneRowOfManyFails) {
  for (const char* line : kBigCases) {
    EXPECT_NE(judge_mla(line, [](const auto&, SparseMlaBuffers& b) { list_of(b)[777] = -1; }), "") << line;
  }
}

TEST(Mutation, CountingOneRowTwiceFails) {
  for (const char* line : kBigCases) {
    EXPECT_NE(judge_mla(line, [](const auto&, SparseMlaBuffers& b) { list_of(b)[5] = list_of(b)[6]; }), "") << line;
  }
}

TEST(Mutation, SwappingTwoColumnsFails) {
  const auto swap_columns = [](const SparseMlaProblem& p, SparseMlaBuffers& b) {
    const int64_t bytes = p.rows == RowFormat::f32 ? 4 : p.rows == RowFormat::bf16 ? 2 : 1;
    for (int64_t slot = 0; slot < b.cache.pages * p.page_size; ++slot) {
      std::byte* row = oracle::row_address(b.cache, p.page_size, slot);
      std::swap_ranges(row + 40 * bytes, row + 41 * bytes, row + 41 * bytes);
    }
  };
  for (const char* line : kBigCases) EXPECT_NE(judge_mla(line, swap_columns), "") << line;
}

TEST(Mutation, UsingTheNeighboursScaleFails) {
  const auto shift_scales = [](const SparseMlaProblem& p, SparseMlaBuffers& b) {
    const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
    for (int64_t slot = 0; slot < b.cache.pages * p.page_size; ++slot) {
      std::byte* row = oracle::row_address(b.cache, p.page_size, slot);
      std::rotate(row + layout.scales, row + layout.scales + 4, row + layout.rope);
    }
  };
  EXPECT_NE(judge_mla("mla heads=8 topk=2048 tokens=1 rows=v32_fp8", shift_scales), "");
  EXPECT_NE(judge_mla("mla heads=8 topk=64 tokens=1 rows=v32_fp8 values=wide", shift_scales), "");
}

TEST(Mutation, AScaleReadAsAPowerOfTwoRoundedDownFails) {
  const auto truncate = [](const SparseMlaProblem& p, SparseMlaBuffers& b) {
    const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
    for (int64_t slot = 0; slot < b.cache.pages * p.page_size; ++slot) {
      std::byte* scale = oracle::row_address(b.cache, p.page_size, slot) + layout.scales;
      scale[0] = scale[1] = std::byte{0};
      scale[2] &= std::byte{0x80};
    }
  };
  EXPECT_NE(judge_mla("mla heads=8 topk=2048 tokens=1 rows=v32_fp8", truncate), "");
}

TEST(Mutation, AScaleOnTheScoresThatIsSlightlyOffFails) {
  for (const char* line : kBigCases) {
    auto built = build_case(spec_of(line));
    auto& test = dynamic_cast<MlaCase&>(**built);
    OracleTarget target;
    test.problem.softmax_scale *= 1.02f;
    ASSERT_EQ(test.run(target).kind, Outcome::Kind::ran);
    EXPECT_NE(test.judge(target), "") << line;
  }
}

TEST(Mutation, ALengthIgnoredFails) {
  const auto ignore = [](const auto&, SparseMlaBuffers& b) { b.topk_len = {}; };
  EXPECT_NE(judge_mla("mla topk=128 len=127 tokens=2", ignore), "");
}

TEST(Mutation, ASinkIgnoredOrCountedInTheLseFails) {
  EXPECT_NE(judge_mla("mla sink=zero topk=8", [](const auto&, SparseMlaBuffers& b) { b.sink = {}; }), "");
}

// A target that writes what it likes.
class Writer : public OracleTarget {
 public:
  explicit Writer(std::function<void(const SparseMlaBuffers&, Image&)> after) : after_(std::move(after)) {}
  Outcome run(const SparseMlaProblem& p, const SparseMlaBuffers& b, Image& image) override {
    Outcome outcome = OracleTarget::run(p, b, image);
    after_(b, image);
    return outcome;
  }

 private:
  std::function<void(const SparseMlaBuffers&, Image&)> after_;
};

std::string judge_writer(const std::string& line, std::function<void(const SparseMlaBuffers&, Image&)> after) {
  auto built = build_case(spec_of(line));
  EXPECT_TRUE(built.ok());
  Writer target(std::move(after));
  EXPECT_EQ((*built)->run(target).kind, Outcome::Kind::ran);
  return (*built)->judge(target);
}

TEST(Traps, StrayWritesAreNoticed) {
  const std::string line = "mla strides=padded tokens=2 heads=4";
  EXPECT_EQ(judge_writer(line, [](const auto&, Image&) {}), "");
  EXPECT_NE(judge_writer(line, [](const auto&, Image& i) { i.block("out").data()[-1] = std::byte{0}; }), "");
  EXPECT_NE(
      judge_writer(line, [](const auto&, Image& i) { i.block("lse").data()[i.block("lse").bytes] = std::byte{0}; }),
      "");
  EXPECT_NE(judge_writer(line, [](const auto&, Image& i) { i.block("cache").data()[9] ^= std::byte{1}; }), "");
  // Between the rows of a padded output: d_v is 512, so element 512 of the first head belongs to nobody.
  EXPECT_NE(judge_writer(line, [](const auto&, Image& i) { i.block("out").data()[512 * 2] = std::byte{0}; }), "");
}

TEST(Traps, AnElementLeftUnwrittenIsNoticed) {
  EXPECT_NE(
      judge_writer("mla tokens=2", [](const auto&, Image& i) { std::memset(i.block("out").data() + 100, 0xFF, 2); }),
      "");
  EXPECT_NE(judge_writer("mla tokens=2 list=empty",
                         [](const auto&, Image& i) { std::memset(i.block("lse").data(), 0xFF, 4); }),
            "");
}

TEST(Traps, AnEmptyRowMustGiveMinusInfinityAndZeros) {
  EXPECT_NE(judge_writer("mla tokens=2 list=empty",
                         [](const auto&, Image& i) {
                           const float wrong = std::numeric_limits<float>::infinity();
                           std::memcpy(i.block("lse").data(), &wrong, 4);
                         }),
            "");
  EXPECT_NE(judge_writer("mla tokens=2 list=empty",
                         [](const auto&, Image& i) {
                           const bf16 tiny = to_bf16(1e-6f);
                           std::memcpy(i.block("out").data() + 64, &tiny, 2);
                         }),
            "");
}

TEST(Compare, NaNWhereANumberBelongsFails) {
  const AttentionValues want{{1.0, 2.0}, {0.0}};
  AttentionValues got{{1.0, std::nan("")}, {0.0}};
  EXPECT_NE(compare_attention({1, 1, 2}, want, got, {}, {1, 1, 1, 1, 0}), "");
}

TEST(Compare, NamesTheWorstElement) {
  AttentionValues want{std::vector<double>(2 * 3 * 4, 1.0), {}};
  AttentionValues got = want;
  got.out[(1 * 3 + 2) * 4 + 3] = 1.5;
  got.out[0] = 1.1;
  const std::string text = compare_attention({2, 3, 4}, want, got, {}, {0.01, 0.01, 1e-6, 1e-6, 0});
  EXPECT_NE(text.find("token 1, head 2, column 3"), std::string::npos) << text;
}

// Selection: the oracle's answer passes, its mutations fail.
struct Selection {
  std::unique_ptr<Case> owner;
  SelectCase* test = nullptr;
  oracle::SelectResult right;
  explicit Selection(const std::string& line) : owner(build_case(spec_of(line)).value()) {
    test = dynamic_cast<SelectCase*>(owner.get());
    right = oracle::index_select(test->problem, test->buffers);
  }
  [[nodiscard]] std::string judge(const oracle::SelectResult& result) const {
    return test->compare_selection(result.out, result.out_len, 0x1p-18);
  }
};

TEST(Mutation, ACandidateBufferOf16384EqualScoresFails) {
  const Selection selection("select scores=border len=40000 topk=2048 tokens=1 heads=2 keys=fp8 output=positions");
  EXPECT_EQ(selection.judge(selection.right), "");
  // A selector that keeps the first 16,384 candidates at or above the border and drops what comes after.
  oracle::IndexScores scores = oracle::index_scores(selection.test->problem, selection.test->buffers, 0);
  int64_t kept = 0;
  for (double& score : scores.score) {
    if (++kept > 16384) score = -1e9;
  }
  oracle::SelectResult wrong = selection.right;
  const std::vector<int64_t> chosen = oracle::top_positions(scores.score, 2048);
  std::copy(chosen.begin(), chosen.end(), wrong.out.begin());
  EXPECT_NE(selection.judge(wrong), "");
}

TEST(Mutation, HigherPositionOfATieFails) {
  const Selection selection("select scores=equal len=300 topk=64 tokens=1 output=positions");
  EXPECT_EQ(selection.judge(selection.right), "");
  oracle::SelectResult wrong = selection.right;
  wrong.out[63] = 64;
  EXPECT_NE(selection.judge(wrong), "");
}

TEST(Mutation, WrongSelectionsOfRandomScoresFail) {
  const Selection selection("select len=2000 topk=64 tokens=2 keys=bf16");
  EXPECT_EQ(selection.judge(selection.right), "");
  oracle::SelectResult unsorted = selection.right;
  std::swap(unsorted.out[3], unsorted.out[4]);
  EXPECT_NE(selection.judge(unsorted), "");
  oracle::SelectResult twice = selection.right;
  twice.out[4] = twice.out[3];
  EXPECT_NE(selection.judge(twice), "");
  oracle::SelectResult foreign = selection.right;
  foreign.out[0] = selection.right.out[64];  // a slot of the other sequence
  EXPECT_NE(selection.judge(foreign), "");
  oracle::SelectResult count = selection.right;
  count.out_len[1] = 63;
  EXPECT_NE(selection.judge(count), "");
}

TEST(Mutation, AWeakerPositionInsteadOfAStrongerFails) {
  const Selection selection("select len=2000 topk=64 tokens=1 keys=bf16 output=positions");
  const auto& right = selection.right.out;
  int64_t failures = 0, tried = 0;
  for (int32_t extra = 0; extra < 2000; extra += 31) {
    if (std::binary_search(right.begin(), right.begin() + 64, extra)) continue;
    oracle::SelectResult wrong = selection.right;
    wrong.out[10] = extra;
    std::sort(wrong.out.begin(), wrong.out.begin() + 64);
    ++tried;
    failures += selection.judge(wrong).empty() ? 0 : 1;
  }
  EXPECT_GT(tried, 50);
  EXPECT_EQ(failures, tried);
}

TEST(Mutation, EntriesBehindTheLengthMustBeMinusOne) {
  const Selection selection("select len=10 topk=64 tokens=1");
  oracle::SelectResult wrong = selection.right;
  wrong.out[10] = 0;
  EXPECT_EQ(selection.judge(selection.right), "");
  EXPECT_NE(selection.judge(wrong), "");
}

class OracleWriter : public Target {
 public:
  explicit OracleWriter(std::function<void(CacheWriteProblem&, const CacheWriteBuffers&)> damage)
      : damage_(std::move(damage)) {}
  [[nodiscard]] std::string name() const override { return "oracle"; }
  Outcome run(const CacheWriteProblem& given, const CacheWriteBuffers& b, Image&) override {
    CacheWriteProblem p = given;
    if (damage_) damage_(p, b);
    oracle::cache_write(p, b);
    return ran();
  }

 private:
  std::function<void(CacheWriteProblem&, const CacheWriteBuffers&)> damage_;
};

std::string judge_write(const std::string& line,
                        std::function<void(CacheWriteProblem&, const CacheWriteBuffers&)> damage = {}) {
  auto built = build_case(spec_of(line));
  EXPECT_TRUE(built.ok()) << built.status().message();
  OracleWriter target(std::move(damage));
  EXPECT_EQ((*built)->run(target).kind, Outcome::Kind::ran);
  return (*built)->judge(target);
}

TEST(Mutation, WrongBytesOfACacheWriterFail) {
  const std::string line = "write rows=v32_fp8 keys=fp8 tokens=6";
  EXPECT_EQ(judge_write(line), "");
  EXPECT_NE(judge_write(line, [](auto& p, const auto&) { p.scale_mode = ScaleMode::plain; }), "");
  EXPECT_NE(judge_write(line, [](auto& p, const auto&) { p.tokens -= 1; }), "");
  EXPECT_NE(judge_write(line, [](auto& p, const auto&) { p.index_dim = 0; }), "");
  // One byte of a slot that nobody named.
  EXPECT_NE(judge_write("write slots=none rows=bf16", [](auto&, const auto& b) { b.cache.data[3] = std::byte{1}; }),
            "");
  EXPECT_NE(judge_write("write slots=none rows=bf16", [](auto&, const auto& b) { b.key_cache.data[3] = std::byte{1}; }),
            "");
}

// The merge as a kernel computes it: float, base-2 exponentials of rounded arguments. `lost` leaves one part out.
class FloatMerge : public Target {
 public:
  explicit FloatMerge(int32_t lost = -1) : lost_(lost) {}
  [[nodiscard]] std::string name() const override { return "merge in float"; }
  Outcome run(const MergeProblem& p, const MergeBuffers& b, Image&) override {
    for (int64_t t = 0; t < p.tokens; ++t) {
      for (int64_t h = 0; h < p.q_heads; ++h) merge_row(p, b, t, h);
    }
    return ran();
  }

 private:
  static float exp_of(float x) { return std::exp2(x * 1.44269504f); }
  void merge_row(const MergeProblem& p, const MergeBuffers& b, int64_t t, int64_t h) const {
    const auto lse_of = [&](int32_t part) {
      return part == lost_ ? -std::numeric_limits<float>::infinity() : b.part_lse(part, t, h);
    };
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int32_t part = 0; part < p.parts; ++part) top = std::max(top, lse_of(part));
    std::vector<float> weight(static_cast<std::size_t>(p.parts), 0.0f);
    for (int32_t part = 0; part < p.parts && std::isfinite(top); ++part) {
      sum += weight[static_cast<std::size_t>(part)] = exp_of(lse_of(part) - top);
    }
    const float lse = sum > 0 ? top + std::log(sum) : top;
    float factor = sum > 0 ? 1 / sum : 0;
    if (!b.sink.empty()) factor /= 1 + exp_of(b.sink(h) - lse);
    for (int64_t d = 0; d < p.d_v; ++d) {
      float out = 0;
      for (int32_t part = 0; part < p.parts; ++part) {
        const float w = weight[static_cast<std::size_t>(part)];
        if (w > 0) out += w * factor * b.part_out(part, t, h, d);
      }
      store_element(b.out, p.out_type, t * b.out.token_stride + h * b.out.head_stride + d, sum > 0 ? out : 0.0f);
    }
    if (!b.lse.empty()) b.lse(t, h) = lse;
  }
  int32_t lost_;
};

TEST(Merge, FloatPassesWhereResultsLeaveItsRange) {
  for (const char* sink : {"none", "per_head", "pos_inf", "neg_inf"}) {
    for (const char* out : {"f32", "bf16"}) {
      const std::string line =
          concat("merge parts=5 tokens=40 heads=64 d_v=128 lse_spread=50 parts_empty=some sink=", sink, " out=", out);
      auto built = build_case(spec_of(line));
      ASSERT_TRUE(built.ok()) << built.status().message();
      FloatMerge target;
      EXPECT_EQ((*built)->run(target).kind, Outcome::Kind::ran);
      EXPECT_EQ((*built)->judge(target), "") << line;
    }
  }
}

TEST(Mutation, LosingOnePartOfAMergeFails) {
  for (const char* spread : {"1", "5", "50"}) {
    auto built = build_case(spec_of(concat("merge parts=5 tokens=4 heads=8 lse_spread=", spread)));
    ASSERT_TRUE(built.ok()) << built.status().message();
    FloatMerge target(2);
    EXPECT_EQ((*built)->run(target).kind, Outcome::Kind::ran);
    EXPECT_NE((*built)->judge(target), "") << spread;
  }
}

TEST(Cases, ACommaListGivesEveryCombination) {
  const auto cases = parse_cases("# nothing\n\nmla heads=1,2 topk=3,4,5 rows=f32 # three\nwrite slow tokens=1\n", "f");
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  ASSERT_EQ(cases->size(), 7u);
  EXPECT_EQ(cases->at(0).where, "f:3");
  EXPECT_EQ(cases->at(5).given, "heads=2 topk=5 rows=f32");
  EXPECT_EQ(cases->at(5).integer("page_size"), 64);
  EXPECT_TRUE(cases->at(6).slow);
}

TEST(Cases, ErrorsNameTheLine) {
  for (const char* line :
       {"mlx heads=1", "mla head=1", "mla heads=x", "mla list=nope", "mla heads=", "mla heads", "mla heads=1,,2",
        "select len=", "merge parts=2 bogus", "mla len=some", "select len=topk-2", "select start=late"}) {
    const auto cases = parse_cases(concat("\n", line), "file.case");
    ASSERT_FALSE(cases.ok()) << line;
    EXPECT_NE(cases.status().message().find("file.case:2"), std::string::npos) << cases.status().message();
  }
}

TEST(Cases, AFolderWithoutCasesIsAnError) { EXPECT_EQ(load_cases("src/core").status().code(), StatusCode::io_error); }

TEST(Cases, ACaseOutsideTheContractIsReportedAsFailed) {
  OracleTarget target;
  Target* targets[] = {&target};
  int reports = 0;
  const Tally tally = run_case(spec_of("mla heads=129"), targets, [&](const Finding&) { ++reports; });
  EXPECT_EQ(tally.failed, 1);
  EXPECT_EQ(reports, 1);
}

TEST(Cases, TheSameTextGivesTheSameBytes) {
  auto a = build_case(spec_of("mla rows=v32_fp8 list=wild")).value(),
       b = build_case(spec_of("mla rows=v32_fp8 list=wild")).value();
  for (std::size_t i = 0; i < a->image().blocks().size(); ++i) {
    const Block &x = a->image().blocks()[i], &y = b->image().blocks()[i];
    ASSERT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.bytes)), 0) << x.name;
  }
}

TEST(Random, IsPcg32) {  // the first outputs of the reference implementation for seed 42, stream 54
  Random random(42, 54);
  for (uint32_t want : {0xA15C02B7u, 0x7B47F409u, 0xBA1D3330u, 0x83D2F293u}) EXPECT_EQ(random.next(), want);
}

}  // namespace
}  // namespace winnow::conformance
