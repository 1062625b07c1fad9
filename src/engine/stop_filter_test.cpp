// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_filter.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace winnow {
namespace {

TEST(StopFilter, WithoutStopsEverythingPasses) {
  StopFilter filter({});
  EXPECT_EQ("", filter.push(""));
  EXPECT_EQ("abc", filter.push("abc"));
  EXPECT_EQ("", filter.finish());
}

TEST(StopFilter, NoPartOfAStopStringIsShown) {
  StopFilter filter({"END"});
  EXPECT_EQ("the ", filter.push("the E"));
  EXPECT_EQ("", filter.push("N"));
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ("", filter.push("D and more"));
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ("", filter.push("nothing after it"));
  EXPECT_EQ("", filter.finish());
}

TEST(StopFilter, AFalseBeginningIsShownAfterAll) {
  StopFilter filter({"END"});
  EXPECT_EQ("", filter.push("EN"));
  EXPECT_EQ("ENEMY ", filter.push("EMY E") + filter.push("")) << "all but what may still become END";
}

TEST(StopFilter, TheBeginningHeldAtTheEndIsText) {
  StopFilter filter({"END"});
  EXPECT_EQ("x", filter.push("xEN"));
  EXPECT_EQ("EN", filter.finish());
}

TEST(StopFilter, TheEarliestOfSeveralCuts) {
  StopFilter filter({"</answer>", "\n\n"});
  EXPECT_EQ("a", filter.push("a\n\nb</answer>"));
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilter, SelfOverlap) {
  StopFilter filter({"aab"});
  std::string shown;
  for (char c : std::string("aaaab!")) shown += filter.push(std::string(1, c));
  EXPECT_EQ("aa", shown);
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilter, PiecesDoNotMatter) {
  EXPECT_TRUE(rc::check("any cutting gives the text before the first stop string", [] {
    const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    const std::string text = *letters;
    const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(letters));
    std::size_t first = text.size(), end = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t at = text.find(stop);
      if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, first)) continue;
      first = at;
      end = at + stop.size();
    }
    StopFilter filter(stops);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const auto length = static_cast<std::size_t>(*rc::gen::inRange(1, 4));
      shown += filter.push(text.substr(at, length));
      RC_ASSERT(text.substr(0, first).starts_with(shown));
      at += length;
    }
    RC_ASSERT(filter.stopped() == (end != std::string::npos));
    RC_ASSERT(shown + filter.finish() == text.substr(0, first));
  }));
}

}  // namespace
}  // namespace winnow
