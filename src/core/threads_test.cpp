// SPDX-License-Identifier: Apache-2.0
#include "core/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace winnow {
namespace {

// Every item once, every worker number within the team, whatever the sizes.
void expect_cover(int64_t items, int64_t grain) {
  std::vector<std::atomic<int>> hits(static_cast<std::size_t>(items));
  std::atomic<int> strangers{0};
  parallel_for(items, grain, [&](int64_t begin, int64_t end, int worker) {
    if (worker < 0 || worker >= threads()) ++strangers;
    for (int64_t i = begin; i < end; ++i) ++hits[i];
  });
  EXPECT_EQ(0, strangers);
  for (const std::atomic<int>& hit : hits) ASSERT_EQ(1, hit) << items << " items, grain " << grain;
}

class TeamTest : public testing::Test {
 protected:
  ~TeamTest() override { set_threads(0); }
};

TEST_F(TeamTest, NothingToDo) {
  parallel_for(0, 1, [](int64_t, int64_t, int) { FAIL(); });
  parallel_for(-3, 1, [](int64_t, int64_t, int) { FAIL(); });
}

TEST_F(TeamTest, ItemsAreCoveredWhateverTheTeam) {
  for (int team : {1, 2, 7, 3, 16}) {
    set_threads(team);
    EXPECT_EQ(team, threads());
    for (int64_t items : {1, 2, 5, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) expect_cover(items, grain);
    }
  }
}

// The regions of a decode step: short, in close succession, from a team that grows and shrinks.
TEST_F(TeamTest, ManyShortRegions) {
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 20000; ++round) {
    if (round % 1000 == 0) set_threads(1 + round / 1000 % 5);
    parallel_for(4, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  }
  EXPECT_EQ(80000, sum);
}

TEST_F(TeamTest, InsideAnotherItRunsInlineUnderTheSameNumber) {
  set_threads(4);
  std::atomic<int> wrong{0}, inner{0};
  parallel_for(8, 1, [&](int64_t, int64_t, int outer) {
    const std::thread::id self = std::this_thread::get_id();
    parallel_for(10, 1, [&](int64_t begin, int64_t end, int worker) {
      if (worker != outer || std::this_thread::get_id() != self) ++wrong;
      inner += static_cast<int>(end - begin);
    });
  });
  EXPECT_EQ(0, wrong);
  EXPECT_EQ(80, inner);
}

TEST_F(TeamTest, SeveralCallersAtOnce) {
  set_threads(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  callers.reserve(4);
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        parallel_for(10, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(4 * 500 * 10, sum);
}

TEST_F(TeamTest, TheCallerWaitsForPiecesThatWereTaken) {
  set_threads(2);
  std::atomic<int> done{0};
  parallel_for(2, 1, [&](int64_t, int64_t, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++done;
  });
  EXPECT_EQ(2, done);
}

TEST_F(TeamTest, AWorkerThatFellAsleepComesBack) {
  set_threads(2);
  expect_cover(10, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::atomic<bool> helped{false};
  for (int i = 0; i < 1000 && !helped; ++i) {
    parallel_for(2, 1, [&](int64_t, int64_t, int worker) {
      if (worker == 1) helped = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  EXPECT_TRUE(helped);
}

}  // namespace
}  // namespace winnow
