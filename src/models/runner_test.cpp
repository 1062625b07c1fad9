// SPDX-License-Identifier: Apache-2.0
// What the forward pass promises whatever the weights: batches, chunks and threads change no bit, sparse is dense while
// everything is selected, damage is reported where it appears. Agreement with references stands in tests/models.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "core/threads.hpp"
#include "models/model.hpp"

namespace winnow {
namespace {

const std::string kFolder = "tests/data/nano/";
constexpr const char* kNames[] = {"nano-glm5", "nano-glm52", "nano-dsv32"};

Checkpoint open_nano(const std::string& name) {
  Result<Checkpoint> opened = open_checkpoint(kFolder + name + "-bf16.gguf");
  WINNOW_CHECK(opened.ok(), opened.status().message());
  return std::move(opened).value();
}

std::unique_ptr<Model> load(const Checkpoint& checkpoint) {
  Result<std::unique_ptr<Model>> model = Model::load(checkpoint);
  WINNOW_CHECK(model.ok(), model.status().message());
  return std::move(model).value();
}

std::vector<int32_t> random_ids(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<std::size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 320);
  return ids;
}

// A runner with a cache for up to three sequences of 256 positions.
struct Bench {
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvCache> cache;

  explicit Bench(const Model& model, RunnerOptions options = {}) {
    if (options.context == 0) options.context = 256;
    Result<std::unique_ptr<Runner>> made = Runner::create(model, options);
    WINNOW_CHECK(made.ok(), made.status().message());
    runner = std::move(made).value();
    const CacheShape shape = cache_shape(model.config(), options);
    cache = std::move(KvCache::create(shape, pages_for(shape, options.context) * 3, 3, options.context)).value();
  }

  struct Piece {
    int32_t sequence;
    std::span<const int32_t> ids;
    int64_t first;  // position of the first id
  };
  // Logits of all tokens, one after the other.
  Result<std::vector<float>> feed(const std::vector<Piece>& pieces) {
    std::vector<int32_t> tokens, sequences, positions;
    for (const Piece& piece : pieces) {
      WINNOW_TRY(cache->reserve(piece.sequence, piece.first + static_cast<int64_t>(piece.ids.size())));
      for (std::size_t i = 0; i < piece.ids.size(); ++i) {
        tokens.push_back(piece.ids[i]);
        sequences.push_back(piece.sequence);
        positions.push_back(static_cast<int32_t>(piece.first + static_cast<int64_t>(i)));
      }
    }
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    WINNOW_TRY_ASSIGN(const StepResult result, runner->step({tokens, sequences, positions, rows}, *cache));
    return std::vector<float>(result.logits.data, result.logits.data + result.logits.size(0) * result.logits.size(1));
  }

  // A whole sequence in chunks, in a fresh sequence of the cache.
  std::vector<float> run(const std::vector<int32_t>& ids, int64_t chunk) {
    const int32_t sequence = *cache->open();
    std::vector<float> logits;
    const auto count = static_cast<int64_t>(ids.size());
    for (int64_t at = 0; at < count; at += chunk) {
      const auto length = static_cast<std::size_t>(std::min(chunk, count - at));
      Result<std::vector<float>> part = feed({{sequence, std::span(ids).subspan(at, length), at}});
      WINNOW_CHECK(part.ok(), part.status().message());
      logits.insert(logits.end(), part->begin(), part->end());
    }
    cache->close(sequence);
    return logits;
  }
};

int64_t different(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  return count;
}

TEST(Runner, ChunksChangeNoBit) {
  for (const char* name : kNames) {
    const std::unique_ptr<Model> model = load(open_nano(name));
    const std::vector<int32_t> ids = random_ids(150, 1);
    for (const char* attention : {"", "cpu.reference"}) {
      RunnerOptions options;
      options.attention = attention;
      Bench bench(*model, options);
      const std::vector<float> whole = bench.run(ids, 512);
      for (int64_t chunk : {1, 7, 64}) {
        EXPECT_EQ(0, different(whole, bench.run(ids, chunk))) << name << " " << attention << ", chunks of " << chunk;
      }
    }
  }
}

TEST(Runner, SequencesOfOneStepDoNotSeeEachOther) {
  for (const char* name : kNames) {
    const std::unique_ptr<Model> model = load(open_nano(name));
    Bench bench(*model);
    const std::vector<int32_t> a = random_ids(90, 2), b = random_ids(41, 3);
    const std::vector<float> alone_a = bench.run(a, 512), alone_b = bench.run(b, 512);
    const int32_t first = *bench.cache->open(), second = *bench.cache->open();
    // a's prompt; then b's prompt beside one token of a; then both decode.
    std::vector<float> got_a = *bench.feed({{first, std::span(a).first(80), 0}}), got_b;
    const auto take = [&](const std::vector<Bench::Piece>& pieces, std::size_t of_a) {
      const std::vector<float> both = *bench.feed(pieces);
      const auto cut = both.begin() + static_cast<std::ptrdiff_t>(of_a * 320);
      got_a.insert(got_a.end(), both.begin(), cut);
      got_b.insert(got_b.end(), cut, both.end());
    };
    take({{first, std::span(a).subspan(80, 1), 80}, {second, std::span(b).first(32), 0}}, 1);
    for (int64_t i = 0; i < 9; ++i) {
      take({{first, std::span(a).subspan(81 + i, 1), 81 + i}, {second, std::span(b).subspan(32 + i, 1), 32 + i}}, 1);
    }
    EXPECT_EQ(0, different(alone_a, got_a)) << name;
    EXPECT_EQ(0, different(alone_b, got_b)) << name;
  }
}

TEST(Runner, ThreadsChangeNoBit) {
  const int before = threads();
  const std::unique_ptr<Model> model = load(open_nano("nano-glm52"));
  const std::vector<int32_t> ids = random_ids(120, 4);
  set_threads(1);
  Bench bench(*model);
  const std::vector<float> one = bench.run(ids, 50);
  set_threads(3);
  EXPECT_EQ(0, different(one, bench.run(ids, 50)));
  set_threads(before);
}

// index_topk is 16: up to there the selection is everything. Behind it the two must part, or nothing was tested.
TEST(Runner, SparseIsDenseWhileEverythingIsSelected) {
  for (const char* name : kNames) {
    for (const RowFormat rows : {RowFormat::f32, RowFormat::bf16, RowFormat::v32_fp8}) {
      const std::unique_ptr<Model> model = load(open_nano(name));
      RunnerOptions options;
      options.rows = rows;
      Bench sparse(*model, options);
      options.dense = true;
      Bench dense(*model, options);
      const std::vector<int32_t> ids = random_ids(24, 5);
      for (int64_t chunk : {1, 24}) {
        std::vector<float> a = sparse.run(ids, chunk), b = dense.run(ids, chunk);
        EXPECT_NE(0, different(a, b)) << "behind index_topk";
        a.resize(16 * 320);
        b.resize(16 * 320);
        EXPECT_EQ(0, different(a, b)) << name << " " << name_of(rows) << ", chunks of " << chunk;
      }
    }
  }
}

// Dense lists that do not fit at once are made piece by piece.
TEST(Runner, DenseListsInPieces) {
  const std::unique_ptr<Model> model = load(open_nano("nano-glm5"));
  const std::vector<int32_t> ids = random_ids(100, 6);
  RunnerOptions options;
  options.dense = true;
  Bench usual(*model, options);
  options.context = int64_t{1} << 20;  // four tokens' lists at a time
  Result<std::unique_ptr<Runner>> wide = Runner::create(*model, options);
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  const std::vector<float> wanted = usual.run(ids, 100);
  usual.runner = std::move(wide).value();
  EXPECT_EQ(0, different(wanted, usual.run(ids, 100)));
}

TEST(Runner, RowsReadAndVisibleAreCounted) {
  const std::unique_ptr<Model> model = load(open_nano("nano-glm52"));
  Bench bench(*model);
  const std::vector<int32_t> ids = random_ids(20, 7);
  ASSERT_TRUE(bench.cache->reserve(*bench.cache->open(), 20).ok());
  std::vector<int32_t> sequences(20, 0), positions(20);
  std::iota(positions.begin(), positions.end(), 0);
  const Result<StepResult> result = bench.runner->step({ids, sequences, positions, {}}, *bench.cache);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(5 * 20 * 21 / 2, result->rows_visible);
  EXPECT_EQ(5 * (16 * 17 / 2 + 4 * 16), result->rows_read);
  EXPECT_EQ(0, result->logits.size(0)) << "none were wanted";
}

TEST(Runner, CapturedSelectionsArePositions) {
  const std::unique_ptr<Model> model = load(open_nano("nano-glm52"));
  Bench bench(*model);
  ASSERT_TRUE(bench.cache->reserve(*bench.cache->open(), 1).ok()) << "sequence 1 begins on another page than 0";
  const int32_t sequence = *bench.cache->open();
  ASSERT_TRUE(bench.cache->reserve(sequence, 70).ok());
  const std::vector<int32_t> ids = random_ids(70, 8), sequences(70, sequence);
  std::vector<int32_t> positions(70);
  std::iota(positions.begin(), positions.end(), 0);
  const Result<StepResult> result = bench.runner->step({ids, sequences, positions, {}, true}, *bench.cache);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(3u, result->selections.size());
  EXPECT_EQ(4, result->selections[2].layer);
  for (const LayerSelection& layer : result->selections) {
    ASSERT_EQ(16, layer.topk);
    for (int t = 0; t < 70; ++t) {
      const int32_t* row = layer.positions.data() + t * 16;
      for (int i = 0; i < 16; ++i) {
        if (i > t) {
          ASSERT_EQ(-1, row[i]);
        } else {
          ASSERT_TRUE(row[i] >= 0 && row[i] <= t && (i == 0 || row[i] > row[i - 1])) << "token " << t;
        }
      }
      EXPECT_EQ(t < 16, std::isinf(layer.boundary_gap[t]));
    }
  }
}

TEST(Runner, BatchesThatBreakARuleAreRefused) {
  const std::unique_ptr<Model> model = load(open_nano("nano-glm5"));
  RunnerOptions options;
  options.step_tokens = 4;
  Bench bench(*model, options);
  ASSERT_TRUE(bench.cache->reserve(*bench.cache->open(), 64).ok());
  using Ints = std::vector<int32_t>;
  const auto code = [&](const Ints& tokens, const Ints& sequences, const Ints& positions, const Ints& rows) {
    return bench.runner->step({tokens, sequences, positions, rows}, *bench.cache).status().code();
  };
  EXPECT_EQ(StatusCode::invalid_argument, code({}, {}, {}, {})) << "no tokens";
  EXPECT_EQ(StatusCode::invalid_argument, code(Ints(5, 1), Ints(5, 0), {0, 1, 2, 3, 4}, {})) << "more than step_tokens";
  EXPECT_EQ(StatusCode::invalid_argument, code({1}, {0, 0}, {0}, {})) << "sizes differ";
  EXPECT_EQ(StatusCode::invalid_argument, code({320}, {0}, {0}, {})) << "outside the vocabulary";
  EXPECT_EQ(StatusCode::invalid_argument, code({-1}, {0}, {0}, {}));
  EXPECT_EQ(StatusCode::invalid_argument, code({1}, {3}, {0}, {})) << "no such sequence";
  EXPECT_EQ(StatusCode::invalid_argument, code({1}, {0}, {64}, {})) << "not reserved";
  EXPECT_EQ(StatusCode::invalid_argument, code({1}, {0}, {-1}, {}));
  EXPECT_EQ(StatusCode::invalid_argument, code({1, 2}, {0, 0}, {0, 2}, {})) << "a gap";
  EXPECT_EQ(StatusCode::invalid_argument, code({1}, {0}, {0}, {1})) << "logits of a row that is not there";
  EXPECT_EQ(StatusCode::ok, code({1, 2}, {0, 0}, {0, 1}, {0, 1}));
}

TEST(Runner, AnUnknownBackendIsRefusedWithTheNames) {
  const std::unique_ptr<Model> model = load(open_nano("nano-glm5"));
  RunnerOptions options;
  options.attention = "cpu.magic";
  const Status status = Runner::create(*model, options).status();
  EXPECT_EQ(StatusCode::invalid_argument, status.code());
  EXPECT_NE(std::string::npos, status.message().find("cpu.reference")) << status.message();
}

// A checkpoint whose tensor `name` has the bf16 or f32 pattern of NaN in its first element.
struct Damaged {
  Checkpoint checkpoint;
  std::vector<std::byte> bytes;
  Damaged(const std::string& model, const std::string& name) : checkpoint(open_nano(model)) {
    TensorInfo& tensor = checkpoint.tensors[checkpoint.by_name.at(name)];
    bytes.assign(tensor.data, tensor.data + tensor.bytes);
    std::memset(bytes.data(), 0xFF, tensor.type == StorageType::F32 ? 4 : 2);
    tensor.data = bytes.data();
  }
};

TEST(Runner, NanWeightsAreReportedWhereTheyAppear) {
  const std::pair<const char*, const char*> cases[] = {
      {"blk.2.attn_q_b.weight", "layer 2, attention"},    {"blk.3.ffn_down_shexp.weight", "layer 3, feed-forward"},
      {"blk.0.ffn_norm.weight", "layer 0, feed-forward"}, {"blk.1.indexer.k_norm.bias", "layer 1, indexer"},
      {"blk.4.indexer.proj.weight", "layer 4, indexer"},  {"output_norm.weight", "output head"},
  };
  for (const auto& [tensor, place] : cases) {
    const Damaged damaged("nano-glm52", tensor);
    const std::unique_ptr<Model> model = load(damaged.checkpoint);
    Bench bench(*model);
    const std::vector<int32_t> ids = random_ids(20, 9);
    const Status status = bench.feed({{*bench.cache->open(), ids, 0}}).status();
    EXPECT_EQ(StatusCode::corrupt_data, status.code()) << tensor;
    EXPECT_NE(std::string::npos, status.message().find(place)) << tensor << ": " << status.message();
    EXPECT_NE(std::string::npos, status.message().find("position 0")) << tensor << ": " << status.message();
  }
}

// One damaged row of the embedding: the position of that token is named, and a step without it works again.
TEST(Runner, ANanInOneTokenNamesItsPositionAndDoesNotStay) {
  const Damaged damaged("nano-glm5", "token_embd.weight");
  const std::unique_ptr<Model> model = load(damaged.checkpoint);
  Bench bench(*model);
  const int32_t sequence = *bench.cache->open();
  const std::vector<int32_t> bad = {5, 6, 0, 7}, good = {5, 6, 8, 7};
  const Status status = bench.feed({{sequence, bad, 0}}).status();
  EXPECT_NE(std::string::npos, status.message().find("token embedding")) << status.message();
  EXPECT_NE(std::string::npos, status.message().find("position 2")) << status.message();
  EXPECT_TRUE(bench.feed({{sequence, good, 0}}).ok());
}

TEST(Model, RefusesWhatTheGraphCannotUse) {
  Checkpoint missing = open_nano("nano-glm5");
  missing.by_name.erase("blk.1.attn_k_b.weight");
  EXPECT_EQ(StatusCode::not_found, Model::load(missing).status().code());
  Checkpoint shape = open_nano("nano-glm5");
  std::swap(shape.tensors[shape.by_name.at("output.weight")].dims[0],
            shape.tensors[shape.by_name.at("output.weight")].dims[1]);
  EXPECT_EQ(StatusCode::corrupt_data, Model::load(shape).status().code());
}

// gate and up experts in one tensor, gate rows first: the same bits.
TEST(Model, MergedGateAndUpExperts) {
  const Checkpoint separate = open_nano("nano-glm5");
  Checkpoint merged = open_nano("nano-glm5");
  const TensorInfo& gate = *separate.find("blk.1.ffn_gate_exps.weight");
  const TensorInfo& up = *separate.find("blk.1.ffn_up_exps.weight");
  const int64_t experts = gate.dims[2], half = gate.bytes / experts;
  std::vector<std::byte> both(static_cast<std::size_t>(2 * gate.bytes));
  for (int64_t e = 0; e < experts; ++e) {
    std::memcpy(both.data() + 2 * e * half, gate.data + e * half, static_cast<std::size_t>(half));
    std::memcpy(both.data() + (2 * e + 1) * half, up.data + e * half, static_cast<std::size_t>(half));
  }
  TensorInfo info = gate;
  info.name = "blk.1.ffn_gate_up_exps.weight";
  info.dims[1] *= 2;
  info.bytes *= 2;
  info.data = both.data();
  merged.by_name.erase("blk.1.ffn_gate_exps.weight");
  merged.by_name.erase("blk.1.ffn_up_exps.weight");
  merged.by_name[info.name] = merged.tensors.size();
  merged.tensors.push_back(info);
  const std::unique_ptr<Model> a = load(separate), b = load(merged);
  const std::vector<int32_t> ids = random_ids(30, 10);
  EXPECT_EQ(0, different(Bench(*a).run(ids, 30), Bench(*b).run(ids, 30)));
}

TEST(Model, AMixtureWithoutSharedExperts) {
  Checkpoint checkpoint = open_nano("nano-glm5");
  const std::unique_ptr<Model> with = load(checkpoint);
  checkpoint.metadata.set("glm-dsa.expert_shared_count", {.type = gguf::ValueType::u32, .data = uint64_t{0}});
  const std::unique_ptr<Model> without = load(checkpoint);
  const std::vector<int32_t> ids = random_ids(30, 11);
  const std::vector<float> logits = Bench(*without).run(ids, 30);
  EXPECT_NE(0, different(Bench(*with).run(ids, 30), logits));
  EXPECT_EQ(0, different(Bench(*without).run(ids, 7), logits)) << "nothing of the last step stays behind";
}

TEST(Model, WeightsStayMapped) {
  const Checkpoint checkpoint = open_nano("nano-glm52");
  const std::unique_ptr<Model> model = load(checkpoint);
  EXPECT_LT(model->owned_bytes(), 64 * 1024) << "norms and biases alone";
  EXPECT_GT(model->mapped_bytes(), 5 << 20);
}

}  // namespace
}  // namespace winnow
