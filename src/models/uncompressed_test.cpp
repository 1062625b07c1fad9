// SPDX-License-Identifier: Apache-2.0
// The absorbed forward pass against multi-head attention written out with uncompressed keys and values, in double: one
// layer with a plain q projection (DeepSeek-V2-Lite style) and an unsplit kv_b (GGUF files from before the split).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "models/model.hpp"

namespace winnow {
namespace {

constexpr int64_t kHidden = 24, kHeads = 3, kNope = 10, kRope = 4, kValue = 6, kLatent = 32, kWidth = 20, kVocab = 17;
constexpr int64_t kHeadRows = kNope + kValue;
constexpr double kEps = 1e-6, kTheta = 10000;

struct Toy {
  std::map<std::string, std::vector<float>> values;
  Checkpoint checkpoint;

  Toy() {
    const auto set = [&](const std::string& key, int64_t v) {
      checkpoint.metadata.set("deepseek2." + key, {.type = gguf::ValueType::u32, .data = static_cast<uint64_t>(v)});
    };
    checkpoint.metadata.set("general.architecture",
                            {.type = gguf::ValueType::string, .data = std::string("deepseek2")});
    checkpoint.metadata.set("deepseek2.attention.layer_norm_rms_epsilon", {.type = gguf::ValueType::f32, .data = kEps});
    set("block_count", 1);
    set("embedding_length", kHidden);
    set("context_length", 64);
    set("vocab_size", kVocab);
    set("feed_forward_length", kWidth);
    set("attention.head_count", kHeads);
    set("attention.kv_lora_rank", kLatent);
    set("attention.key_length", kNope + kRope);
    set("attention.value_length", kValue);
    set("rope.dimension_count", kRope);
    add("token_embd.weight", {kHidden, kVocab});
    add("output_norm.weight", {kHidden});
    add("output.weight", {kHidden, kVocab});
    add("blk.0.attn_norm.weight", {kHidden});
    add("blk.0.attn_q.weight", {kHidden, kHeads * (kNope + kRope)});
    add("blk.0.attn_kv_a_mqa.weight", {kHidden, kLatent + kRope});
    add("blk.0.attn_kv_a_norm.weight", {kLatent});
    add("blk.0.attn_kv_b.weight", {kLatent, kHeads * kHeadRows});
    add("blk.0.attn_output.weight", {kHeads * kValue, kHidden});
    add("blk.0.ffn_norm.weight", {kHidden});
    add("blk.0.ffn_gate.weight", {kHidden, kWidth});
    add("blk.0.ffn_up.weight", {kHidden, kWidth});
    add("blk.0.ffn_down.weight", {kWidth, kHidden});
  }

  void add(const std::string& name, std::vector<int64_t> dims) {
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    std::mt19937 random(static_cast<uint32_t>(checkpoint.tensors.size()));
    std::normal_distribution<float> normal(name.find("norm") != std::string::npos ? 1.0f : 0.0f, 0.5f);
    std::vector<float> data(static_cast<std::size_t>(count));
    for (float& v : data) v = normal(random);
    place(name, std::move(dims), std::move(data));
  }
  void place(const std::string& name, std::vector<int64_t> dims, std::vector<float> data) {
    std::vector<float>& kept = values[name] = std::move(data);
    TensorInfo info{.name = name, .rank = static_cast<int32_t>(dims.size())};
    std::copy(dims.begin(), dims.end(), info.dims.begin());
    info.data = reinterpret_cast<const std::byte*>(kept.data());
    info.bytes = static_cast<int64_t>(kept.size() * sizeof(float));
    checkpoint.by_name[name] = checkpoint.tensors.size();
    checkpoint.tensors.push_back(info);
  }
};

using Row = std::vector<double>;

Row times(const std::vector<float>& w, const Row& x, int64_t out) {
  Row y(static_cast<std::size_t>(out), 0.0);
  const auto in = static_cast<int64_t>(x.size());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) y[o] += static_cast<double>(w[o * in + i]) * x[i];
  }
  return y;
}

Row norm(const Row& x, const std::vector<float>& w) {
  double sum = 0;
  for (double v : x) sum += v * v;
  Row y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= w[i] / std::sqrt(sum / static_cast<double>(x.size()) + kEps);
  return y;
}

void turn(double* x, int64_t position) {
  for (int64_t j = 0; j < kRope / 2; ++j) {
    const double angle = static_cast<double>(position) * std::pow(kTheta, -2.0 * static_cast<double>(j) / kRope);
    const double u = x[2 * j], v = x[2 * j + 1];
    x[2 * j] = u * std::cos(angle) - v * std::sin(angle);
    x[2 * j + 1] = u * std::sin(angle) + v * std::cos(angle);
  }
}

std::vector<Row> written_out(Toy& toy, const std::vector<int32_t>& ids) {
  auto& w = toy.values;
  std::vector<Row> x, key_rope, up;  // up: per token all heads' uncompressed [key | value]
  std::vector<Row> logits;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const float* row = w["token_embd.weight"].data() + ids[t] * kHidden;
    x.emplace_back(row, row + kHidden);
    const Row a = norm(x[t], w["blk.0.attn_norm.weight"]);
    Row z = times(w["blk.0.attn_kv_a_mqa.weight"], a, kLatent + kRope);
    turn(z.data() + kLatent, static_cast<int64_t>(t));
    key_rope.emplace_back(z.begin() + kLatent, z.end());
    z.resize(kLatent);
    up.push_back(times(w["blk.0.attn_kv_b.weight"], norm(z, w["blk.0.attn_kv_a_norm.weight"]), kHeads * kHeadRows));
    Row q = times(w["blk.0.attn_q.weight"], a, kHeads * (kNope + kRope)), heads;
    for (int64_t h = 0; h < kHeads; ++h) {
      double* query = q.data() + h * (kNope + kRope);
      turn(query + kNope, static_cast<int64_t>(t));
      Row score, out(kValue, 0.0);
      double sum = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < kNope; ++i) dot += query[i] * up[s][h * kHeadRows + i];
        for (int64_t i = 0; i < kRope; ++i) dot += query[kNope + i] * key_rope[s][i];
        score.push_back(std::exp(dot / std::sqrt(static_cast<double>(kNope + kRope))));
        sum += score.back();
      }
      for (std::size_t s = 0; s <= t; ++s) {
        for (int64_t i = 0; i < kValue; ++i) out[i] += score[s] / sum * up[s][h * kHeadRows + kNope + i];
      }
      heads.insert(heads.end(), out.begin(), out.end());
    }
    const Row attention = times(w["blk.0.attn_output.weight"], heads, kHidden);
    for (int64_t i = 0; i < kHidden; ++i) x[t][i] += attention[i];
    const Row b = norm(x[t], w["blk.0.ffn_norm.weight"]);
    Row gate = times(w["blk.0.ffn_gate.weight"], b, kWidth);
    const Row lift = times(w["blk.0.ffn_up.weight"], b, kWidth);
    for (int64_t i = 0; i < kWidth; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * lift[i];
    const Row ffn = times(w["blk.0.ffn_down.weight"], gate, kHidden);
    for (int64_t i = 0; i < kHidden; ++i) x[t][i] += ffn[i];
    logits.push_back(times(w["output.weight"], norm(x[t], w["output_norm.weight"]), kVocab));
  }
  return logits;
}

std::vector<float> logits_of(const Checkpoint& checkpoint, const std::vector<int32_t>& ids) {
  Result<std::unique_ptr<Model>> model = Model::load(checkpoint);
  WINNOW_CHECK(model.ok(), model.status().message());
  RunnerOptions options;
  options.rows = RowFormat::f32;
  Result<std::unique_ptr<Runner>> runner = Runner::create(**model, options);
  WINNOW_CHECK(runner.ok(), runner.status().message());
  auto cache = std::move(KvCache::create(cache_shape((*model)->config(), options), 1, 1, 64)).value();
  const int32_t sequence = *cache->open();
  WINNOW_CHECK(cache->reserve(sequence, static_cast<int64_t>(ids.size())).ok(), "one page holds ", ids.size());
  const std::vector<int32_t> sequences(ids.size(), sequence);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const Result<StepResult> result = (*runner)->step({ids, sequences, positions, positions}, *cache);
  WINNOW_CHECK(result.ok(), result.status().message());
  return {result->logits.data, result->logits.data + static_cast<int64_t>(ids.size()) * kVocab};
}

const std::vector<int32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 16, 0};

TEST(Uncompressed, AgreesWithTheAbsorbedForm) {
  Toy toy;
  const std::vector<Row> wanted = written_out(toy, kIds);
  const std::vector<float> got = logits_of(toy.checkpoint, kIds);
  double largest = 0;
  for (const Row& row : wanted) {
    for (double v : row) largest = std::max(largest, std::abs(v));
  }
  for (std::size_t t = 0; t < kIds.size(); ++t) {
    for (int64_t i = 0; i < kVocab; ++i)
      ASSERT_NEAR(wanted[t][i], got[t * kVocab + i], 2e-6 * largest) << t << " " << i;
  }
}

// The same weights, split and half transposed as newer files have them: the same bits.
TEST(Uncompressed, SplitAndUnsplitAreTheSame) {
  Toy unsplit, split;
  const std::vector<float>& kv_b = unsplit.values["blk.0.attn_kv_b.weight"];
  std::vector<float> k(kHeads * kLatent * kNope), v(kHeads * kValue * kLatent);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t l = 0; l < kLatent; ++l) {
      for (int64_t i = 0; i < kNope; ++i) k[(h * kLatent + l) * kNope + i] = kv_b[(h * kHeadRows + i) * kLatent + l];
      for (int64_t i = 0; i < kValue; ++i)
        v[(h * kValue + i) * kLatent + l] = kv_b[(h * kHeadRows + kNope + i) * kLatent + l];
    }
  }
  split.checkpoint.by_name.erase("blk.0.attn_kv_b.weight");
  split.place("blk.0.attn_k_b.weight", {kNope, kLatent, kHeads}, k);
  split.place("blk.0.attn_v_b.weight", {kLatent, kValue, kHeads}, v);
  EXPECT_EQ(logits_of(unsplit.checkpoint, kIds), logits_of(split.checkpoint, kIds));
}

}  // namespace
}  // namespace winnow
