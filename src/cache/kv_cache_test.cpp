// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_cache.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

namespace winnow {
namespace {

CacheShape small_shape() {
  return {.layers = 3,
          .full_indexer = {true, false, true},
          .d_nope = 32,
          .d_rope = 8,
          .index_dim = 16,
          .page_size = 4,
          .rows = RowFormat::bf16,
          .keys = KeyFormat::fp8};
}

std::unique_ptr<KvCache> make_cache(int64_t pages, int32_t sequences, int64_t context) {
  auto made = KvCache::create(small_shape(), pages, sequences, context);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(KvCache, BytesPerTokenAreThePublishedNumbers) {
  CacheShape glm52{.layers = 78, .d_nope = 512, .d_rope = 64, .index_dim = 128};
  glm52.full_indexer.assign(78, false);
  for (int64_t layer = 0; layer < 78; ++layer)
    glm52.full_indexer[static_cast<std::size_t>(layer)] = layer < 2 || layer % 4 == 2;
  EXPECT_EQ(glm52.key_layers(), 21);
  EXPECT_EQ(cache_bytes_per_token(glm52), 95232);
  glm52.rows = RowFormat::v32_fp8;
  glm52.keys = KeyFormat::fp8;
  EXPECT_EQ(cache_bytes_per_token(glm52), 53940);
  EXPECT_EQ(cache_bytes_per_page(glm52), 53940 * 64);
}

TEST(KvCache, PoolsHoldWhatThePlanSays) {
  const auto cache = make_cache(10, 2, 16);
  EXPECT_EQ(cache->bytes(), cache_bytes_per_page(small_shape()) * 10);
  EXPECT_NE(cache->keys(0).data, nullptr);
  EXPECT_EQ(cache->keys(1).data, nullptr);  // a layer that reuses another's selection has no keys
  EXPECT_EQ(cache->rows(1).pages, 10);
  EXPECT_EQ(cache->keys(2).page_stride_bytes, 4 * (16 + 4));
}

TEST(KvCache, RefusesSizesWithoutMeaning) {
  EXPECT_EQ(KvCache::create(small_shape(), 0, 1, 16).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(KvCache::create(small_shape(), 4, 0, 16).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(KvCache::create(small_shape(), 4, 1, 0).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(KvCache::create(small_shape(), int64_t{1} << 31, 1, 16).status().code(), StatusCode::invalid_argument);
  CacheShape none = small_shape();
  none.layers = 0;
  EXPECT_EQ(KvCache::create(none, 4, 1, 16).status().code(), StatusCode::invalid_argument);
}

TEST(KvCache, ReserveIsAllOrNothing) {
  const auto cache = make_cache(3, 2, 100);
  const int32_t a = cache->open().value(), b = cache->open().value();
  EXPECT_EQ(cache->open().status().code(), StatusCode::out_of_memory);
  EXPECT_TRUE(cache->reserve(a, 0).ok());
  EXPECT_TRUE(cache->reserve(a, 5).ok());  // two pages
  EXPECT_EQ(cache->reserve(b, 9).code(), StatusCode::out_of_memory);
  EXPECT_EQ(cache->pages_of(b), 0);
  EXPECT_EQ(cache->free_pages(), 1);
  EXPECT_EQ(cache->reserve(a, 101).code(), StatusCode::invalid_argument);
  cache->close(a);
  EXPECT_TRUE(cache->reserve(b, 9).ok());
  EXPECT_EQ(cache->page_table()(b, 2), cache->page(b, 2));
  EXPECT_EQ(cache->page_table()(a, 0), -1);
}

TEST(KvCache, SlotsFollowThePageTable) {
  const auto cache = make_cache(8, 2, 32);
  const int32_t a = cache->open().value(), b = cache->open().value();
  ASSERT_TRUE(cache->reserve(a, 4).ok());
  ASSERT_TRUE(cache->reserve(b, 4).ok());
  ASSERT_TRUE(cache->reserve(a, 6).ok());
  EXPECT_EQ(cache->slot(a, 5), cache->page(a, 1) * 4 + 1);
  EXPECT_NE(cache->page(a, 1), cache->page(b, 0));
}

TEST(KvCache, SharedPrefixPagesLiveUntilTheLastReader) {
  const auto cache = make_cache(4, 3, 16);
  const int32_t a = cache->open().value(), b = cache->open().value();
  ASSERT_TRUE(cache->reserve(a, 12).ok());
  ASSERT_TRUE(cache->share_prefix(a, b, 2).ok());
  EXPECT_EQ(cache->slot(b, 7), cache->slot(a, 7));
  EXPECT_EQ(cache->allocator().references(cache->page(a, 0)), 2);
  cache->close(a);
  EXPECT_EQ(cache->free_pages(), 2);
  cache->close(b);
  EXPECT_EQ(cache->free_pages(), 4);
}

TEST(KvCache, SharingMoreThanThereIsIsAnError) {
  const auto cache = make_cache(4, 3, 16);
  const int32_t a = cache->open().value(), b = cache->open().value();
  ASSERT_TRUE(cache->reserve(a, 4).ok());
  EXPECT_FALSE(cache->share_prefix(a, b, 2).ok());
  ASSERT_TRUE(cache->reserve(b, 1).ok());
  EXPECT_FALSE(cache->share_prefix(a, b, 1).ok());
}

// The allocator against a map from page to count.
TEST(PageAllocator, CountsLikeAModel) {
  EXPECT_TRUE(rc::check([] {
    const auto pages = *rc::gen::inRange<int64_t>(0, 12);
    PageAllocator allocator(pages);
    std::map<int32_t, int32_t> model;
    for (const int step : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3 * 16))) {
      const int action = step % 3;
      const auto in_use = static_cast<int>(model.size());
      if (action == 0 || in_use == 0) {
        const int32_t page = allocator.allocate();
        if (in_use == pages) {
          RC_ASSERT(page == -1);
        } else {
          RC_ASSERT(page >= 0 && page < pages && model.count(page) == 0);
          for (int32_t lower = 0; lower < page; ++lower) RC_ASSERT(model.count(lower) == 1);
          model[page] = 1;
        }
        continue;
      }
      const auto picked = std::next(model.begin(), step / 3 % in_use);
      if (action == 1) {
        allocator.retain(picked->first);
        ++picked->second;
      } else {
        allocator.release(picked->first);
        if (--picked->second == 0) model.erase(picked);
      }
      RC_ASSERT(allocator.available() == pages - static_cast<int64_t>(model.size()));
      for (const auto& [page, count] : model) RC_ASSERT(allocator.references(page) == count);
    }
  }));
}

// No page belongs to two sequences unless it was shared, and nothing leaks.
TEST(KvCache, SequencesNeverShareWithoutAsking) {
  EXPECT_TRUE(rc::check([] {
    const auto cache = KvCache::create(small_shape(), 9, 3, 40).value();
    std::set<int32_t> open;
    for (const int step : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4 * 41 * 3))) {
      const auto sequence = static_cast<int32_t>(step % 3);
      const int64_t tokens = step / 12;
      if (open.count(sequence) == 0) {
        open.insert(cache->open().value());
      } else if (step % 4 == 0) {
        cache->close(sequence);
        open.erase(sequence);
      } else if (step % 4 == 1) {
        cache->truncate(sequence, tokens);
      } else {
        (void)cache->reserve(sequence, tokens).ok();
      }
      std::set<int32_t> seen;
      int64_t used = 0;
      for (int32_t s : open) {
        for (int64_t i = 0; i < cache->pages_of(s); ++i, ++used) seen.insert(cache->page(s, i));
      }
      RC_ASSERT(static_cast<int64_t>(seen.size()) == used);
      RC_ASSERT(cache->free_pages() == 9 - used);
    }
  }));
}

}  // namespace
}  // namespace winnow
