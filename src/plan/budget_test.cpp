// SPDX-License-Identifier: Apache-2.0
// Splitting pieces over devices, and speed from bytes and operations, on numbers small enough to check by hand.
#include "plan/budget.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/traffic.hpp"

namespace winnow {
namespace {

Budget pieces(std::initializer_list<int64_t> weights, int64_t cache_per_page = 0) {
  Budget budget;
  for (int64_t bytes : weights) budget.pieces.push_back({bytes, cache_per_page});
  budget.pieces.front().cache_bytes_per_page = budget.pieces.back().cache_bytes_per_page = 0;
  return budget;
}

TEST(Budget, TheReserveAndItsInverseAgree) {
  for (int64_t usable : {int64_t{0}, int64_t{1}, int64_t{97}, int64_t{1} << 30, int64_t{12345678901}}) {
    EXPECT_GE(usable_of(memory_for(usable)), usable);
    EXPECT_LE(usable_of(memory_for(usable)), usable + 200);
  }
  EXPECT_EQ(usable_of(1 << 20), 0);  // a device smaller than the reserve
}

TEST(Budget, OneDeviceHoldsAllOrNothing) {
  const Budget budget = pieces({10, 20, 30, 40});
  EXPECT_TRUE(fits(budget, {1, 107, 7}, 0));
  EXPECT_FALSE(fits(budget, {1, 106, 7}, 0));
  const auto shares = split(budget, {1, 200, 7}, 0);
  ASSERT_TRUE(shares.has_value());
  ASSERT_EQ(shares->size(), 1u);
  EXPECT_EQ(shares->front().weight_bytes, 100);
  EXPECT_EQ(shares->front().layers, 2);
  EXPECT_EQ(shares->front().total_bytes(), 107);
}

TEST(Budget, TheSplitIsTheMostEvenOne) {
  // front 10, layers 20 30 40 50, back 10: 100 + 60 beats 60 + 100 by nothing, 100 is the best there is.
  const auto shares = split(pieces({10, 20, 30, 40, 50, 10}), {2, 1000, 0}, 0);
  ASSERT_TRUE(shares.has_value());
  ASSERT_EQ(shares->size(), 2u);
  EXPECT_EQ(shares->at(0).first_layer, 0);
  EXPECT_EQ(shares->at(0).layers, 3);
  EXPECT_EQ(shares->at(0).weight_bytes, 100);
  EXPECT_EQ(shares->at(1).first_layer, 3);
  EXPECT_EQ(shares->at(1).layers, 1);
  EXPECT_EQ(shares->at(1).weight_bytes, 60);
}

TEST(Budget, ALayerThatNoDeviceHoldsIsNotSplit) {
  EXPECT_FALSE(split(pieces({1, 50, 1}), {8, 49, 0}, 0).has_value());
  EXPECT_FALSE(fewest_devices(pieces({1, 50, 1}), {1, 49, 0}, 0).has_value());
  EXPECT_EQ(fewest_devices(pieces({1, 50, 50, 1}), {1, 60, 0}, 0), 2);
}

TEST(Budget, PagesCount) {
  const Budget budget = pieces({0, 10, 10, 0}, 5);
  EXPECT_EQ(most_pages(budget, {1, 50, 0}, 100), 3);  // 20 + 10 * pages
  EXPECT_EQ(most_pages(budget, {2, 50, 0}, 100), 8);  // 10 + 5 * pages each
  EXPECT_EQ(most_pages(budget, {2, 50, 0}, 4), 4);    // the caller's limit
  EXPECT_EQ(most_pages(budget, {1, 29, 0}, 100), 0);
  EXPECT_EQ(most_pages(budget, {1, 50, 0}, 0), 0);
}

// Least possible maximum of contiguous runs, by trying every split.
int64_t best_maximum(const std::vector<int64_t>& weights, std::size_t from, int devices) {
  int64_t sum = 0, best = std::numeric_limits<int64_t>::max();
  for (std::size_t i = from; i < weights.size(); ++i) {
    sum += weights[i];
    const int64_t rest = i + 1 == weights.size() ? 0 : devices == 1 ? best : best_maximum(weights, i + 1, devices - 1);
    best = std::min(best, std::max(sum, rest));
  }
  return best;
}

TEST(Budget, AnySplitIsCompleteInOrderAndOptimal) {
  const bool holds = rc::check("contiguous, complete, least maximum", [] {
    const auto weights =
        *rc::gen::suchThat(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 50)),
                           [](const std::vector<int64_t>& w) { return w.size() >= 3 && w.size() <= 9; });
    const int devices = *rc::gen::inRange(1, 4);
    Budget budget;
    for (int64_t w : weights) budget.pieces.push_back({w, 0});
    const auto shares = split(budget, {devices, 100000, 3}, 0);
    RC_ASSERT(shares.has_value());
    int64_t next = 0, total = 0, most = 0;
    for (const DeviceShare& share : *shares) {
      if (share.layers > 0) RC_ASSERT(share.first_layer == next);
      next += share.layers;
      total += share.weight_bytes;
      most = std::max(most, share.weight_bytes);
    }
    RC_ASSERT(next == static_cast<int64_t>(weights.size()) - 2);
    RC_ASSERT(total == std::accumulate(weights.begin(), weights.end(), int64_t{0}));
    RC_ASSERT(most == best_maximum(weights, 0, devices));
  });
  EXPECT_TRUE(holds);
}

// 2 layers, latent 4 + 2, 1 head; 100 dense, 40 expert and 10 head bytes, one element a byte; 8 experts, 2 used.
struct Toy {
  ModelConfig config;
  TrafficInputs in;
  DeviceInfo device;
  Toy() {
    config.layers = 2;
    config.heads = 1;
    config.kv_lora = 4;
    config.head_rope = 2;
    config.experts = 8;
    config.experts_used = 2;
    config.index_heads = 1;
    config.index_dim = 3;
    config.index_topk = 4;
    config.full_indexer = {true, false};
    in.config = &config;
    in.weights.dense_bytes = 100;
    in.weights.expert_bytes = 40;
    in.weights.head_bytes = in.weights.head_read_bytes = 10;
    in.weights.dense_elements = 100;
    in.weights.expert_elements = 40;
    in.weights.head_elements = 10;
    in.latent_bytes_per_token = 24;
    in.key_bytes_per_token = 6;
    device.bandwidth = 1000;
    device.matrix_flops = 1e9;
  }
};

TEST(Traffic, DecodeCountsWeightsRowsAndKeys) {
  const Toy toy;
  // 100 dense + 10 head + a quarter of 40 + 4 rows of 24; nothing is scored at 4 positions
  const Speed at4 = decode_speed(toy.in, toy.device, 1, 4);
  EXPECT_DOUBLE_EQ(at4.bytes, 100 + 10 + 10 + 4 * 24);
  EXPECT_DOUBLE_EQ(at4.operations, 2 * (100 + 10 + 10) + 2 * 2 * 4 * (6 + 4));
  // 10 positions: still 4 rows, but 10 keys of one full layer
  const Speed at10 = decode_speed(toy.in, toy.device, 1, 10);
  EXPECT_DOUBLE_EQ(at10.bytes, at4.bytes + 10 * 6);
  EXPECT_DOUBLE_EQ(at10.operations, at4.operations + 2 * 3 * 10);
  EXPECT_EQ(at10.bound, "memory");
  EXPECT_DOUBLE_EQ(at10.tokens_per_second, 1000 / at10.bytes);
}

TEST(Traffic, SequencesShareWeightsAndTouchMoreExperts) {
  const Toy toy;
  const Speed two = decode_speed(toy.in, toy.device, 2, 4);
  EXPECT_DOUBLE_EQ(two.bytes, 100 + 10 + 40 * (1 - 0.75 * 0.75) + 2 * 4 * 24);
  EXPECT_DOUBLE_EQ(two.tokens_per_second, 2 * 1000 / two.bytes);
}

TEST(Traffic, DenseReadsEveryRowAndScoresNothing) {
  Toy toy;
  toy.in.dense = true;
  EXPECT_DOUBLE_EQ(decode_speed(toy.in, toy.device, 1, 10).bytes, 100 + 10 + 10 + 10 * 24);
}

TEST(Traffic, PrefillReadsWeightsOnceAStepAndCountsEveryToken) {
  Toy toy;
  const Speed speed = prefill_speed(toy.in, toy.device, 6, 4);
  const double share4 = 1 - 0.75 * 0.75 * 0.75 * 0.75, share2 = 1 - 0.75 * 0.75;
  EXPECT_NEAR(speed.bytes, (100 + 40 * share4 + 4 * 24) + (100 + 40 * share2 + 6 * 24 + 6 * 6) + 10, 1e-9);
  // rows 1 2 3 4 4 4, keys 5 and 6 positions
  EXPECT_NEAR(speed.operations, 6 * 2 * 110.0 + 2 * 2 * 18 * 10 + 2 * 3 * 11 + 20, 1e-9);
  toy.device.matrix_flops = 1;
  EXPECT_EQ(prefill_speed(toy.in, toy.device, 6, 4).bound, "arithmetic");
}

TEST(Traffic, OneTokenReadsItsShareOfExperts) { EXPECT_EQ(active_weight_bytes(Toy().in), 120); }

}  // namespace
}  // namespace winnow
