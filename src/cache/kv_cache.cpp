// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_cache.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/check.hpp"
#include "core/checked.hpp"

namespace winnow {

bool CacheShape::has_keys(int64_t layer) const {
  return index_dim > 0 && layer >= 0 && layer < static_cast<int64_t>(full_indexer.size()) &&
         full_indexer[static_cast<std::size_t>(layer)];
}

int64_t CacheShape::key_layers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < layers; ++layer) count += has_keys(layer) ? 1 : 0;
  return count;
}

int64_t latent_bytes_per_token(const CacheShape& shape) {
  return shape.layers * row_bytes(shape.rows, shape.d_nope, shape.d_rope);
}

int64_t key_bytes_per_token(const CacheShape& shape) {
  return shape.key_layers() * key_page_bytes(shape.keys, 1, shape.index_dim);
}

int64_t cache_bytes_per_token(const CacheShape& shape) {
  return latent_bytes_per_token(shape) + key_bytes_per_token(shape);
}

int64_t cache_bytes_per_page(const CacheShape& shape) { return cache_bytes_per_token(shape) * shape.page_size; }

int64_t pages_for(const CacheShape& shape, int64_t tokens) { return ceil_div(tokens, shape.page_size); }

PageAllocator::PageAllocator(int64_t pages)
    : references_(static_cast<std::size_t>(pages), 0), free_(static_cast<std::size_t>(pages)) {
  std::iota(free_.begin(), free_.end(), 0);  // ascending is a valid min-heap
}

int32_t PageAllocator::allocate() {
  if (free_.empty()) return -1;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PageAllocator::retain(int32_t page) {
  WINNOW_CHECK(references(page) > 0, "page ", page, " is free");
  ++references_[static_cast<std::size_t>(page)];
}

void PageAllocator::release(int32_t page) {
  WINNOW_CHECK(references(page) > 0, "page ", page, " is free already");
  if (--references_[static_cast<std::size_t>(page)] > 0) return;
  free_.push_back(page);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

int32_t PageAllocator::references(int32_t page) const {
  WINNOW_CHECK(page >= 0 && page < pages(), "page ", page, " of ", pages());
  return references_[static_cast<std::size_t>(page)];
}

KvCache::KvCache(CacheShape shape, int64_t pages, int32_t max_sequences, int64_t max_context)
    : shape_(std::move(shape)),
      allocator_(pages),
      max_context_(max_context),
      table_width_(pages_for(shape_, max_context)),
      table_(static_cast<std::size_t>(max_sequences * table_width_), -1),
      used_pages_(static_cast<std::size_t>(max_sequences), -1) {}

namespace {
Status check_sizes(const CacheShape& shape, int64_t pages, int32_t max_sequences, int64_t max_context) {
  const auto positive = [](const char* what, int64_t value) {
    return value > 0 ? Status()
                     : error(StatusCode::invalid_argument, "cache: ", what, " is ", value, ", wants at least 1");
  };
  WINNOW_TRY(positive("layers", shape.layers));
  WINNOW_TRY(positive("d_nope", shape.d_nope));
  WINNOW_TRY(positive("page_size", shape.page_size));
  WINNOW_TRY(positive("pages", pages));
  WINNOW_TRY(positive("max_sequences", max_sequences));
  WINNOW_TRY(positive("max_context", max_context));
  const std::optional<int64_t> slots = checked_mul(pages, shape.page_size);
  if (!slots || *slots > std::numeric_limits<int32_t>::max()) {
    return error(StatusCode::invalid_argument, "cache: ", pages, " pages of ", shape.page_size,
                 " slots leave int32 slot numbers; use fewer pages");
  }
  if (!checked_product({cache_bytes_per_page(shape), pages})) {
    return error(StatusCode::out_of_memory, "cache: ", pages, " pages of ", cache_bytes_per_page(shape),
                 " bytes leave the address space");
  }
  return Status();
}
}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::create(const CacheShape& shape, int64_t pages, int32_t max_sequences,
                                                 int64_t max_context) {
  WINNOW_TRY(check_sizes(shape, pages, max_sequences, max_context));
  std::unique_ptr<KvCache> cache(new KvCache(shape, pages, max_sequences, max_context));
  WINNOW_TRY(cache->allocate_pools());
  return cache;
}

Status KvCache::allocate_pools() {
  const int64_t pages = allocator_.pages();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const int64_t row_pool = row_bytes(shape_.rows, shape_.d_nope, shape_.d_rope) * shape_.page_size * pages;
    const int64_t key_pool =
        shape_.has_keys(layer) ? key_page_bytes(shape_.keys, shape_.page_size, shape_.index_dim) * pages : 0;
    WINNOW_TRY_ASSIGN(Buffer rows, Buffer::allocate(row_pool));
    WINNOW_TRY_ASSIGN(Buffer keys, Buffer::allocate(key_pool));
    latent_pools_.push_back(std::move(rows));
    key_pools_.push_back(std::move(keys));
    bytes_ += row_pool + key_pool;
  }
  return Status();
}

Result<int32_t> KvCache::open() {
  const auto row = std::find(used_pages_.begin(), used_pages_.end(), -1);
  if (row == used_pages_.end()) {
    return error(StatusCode::out_of_memory, "cache: all ", used_pages_.size(),
                 " sequences are in use; close one first");
  }
  *row = 0;
  return static_cast<int32_t>(row - used_pages_.begin());
}

void KvCache::close(int32_t sequence) {
  truncate(sequence, 0);
  used_pages_[static_cast<std::size_t>(sequence)] = -1;
}

Status KvCache::reserve(int32_t sequence, int64_t tokens) {
  if (tokens > max_context_) {
    return error(StatusCode::invalid_argument, "cache: sequence of ", tokens, " tokens, the context is ", max_context_);
  }
  const int64_t have = pages_of(sequence);
  const int64_t want = pages_for(shape_, tokens);
  if (want - have > allocator_.available()) {
    return error(StatusCode::out_of_memory, "cache: ", want - have, " more pages wanted, ", allocator_.available(),
                 " of ", allocator_.pages(), " free");
  }
  for (int64_t i = have; i < want; ++i) {
    table_[static_cast<std::size_t>(sequence * table_width_ + i)] = allocator_.allocate();
  }
  used_pages_[static_cast<std::size_t>(sequence)] = std::max(have, want);
  return Status();
}

void KvCache::truncate(int32_t sequence, int64_t tokens) {
  int64_t& used = used_pages_[static_cast<std::size_t>(sequence)];
  WINNOW_CHECK(used >= 0, "sequence ", sequence, " is not open");
  for (const int64_t keep = pages_for(shape_, tokens); used > keep; --used) {
    int32_t& entry = table_[static_cast<std::size_t>(sequence * table_width_ + used - 1)];
    allocator_.release(entry);
    entry = -1;
  }
}

Status KvCache::share_prefix(int32_t from, int32_t to, int64_t pages) {
  if (pages < 0 || pages > pages_of(from) || pages_of(to) != 0) {
    return error(StatusCode::invalid_argument, "cache: sharing ", pages, " pages of sequence ", from, ", which has ",
                 pages_of(from), ", with sequence ", to, ", which has ", pages_of(to), " and must have none");
  }
  for (int64_t i = 0; i < pages; ++i) {
    allocator_.retain(page(from, i));
    table_[static_cast<std::size_t>(to * table_width_ + i)] = page(from, i);
  }
  used_pages_[static_cast<std::size_t>(to)] = pages;
  return Status();
}

int64_t KvCache::pages_of(int32_t sequence) const {
  const int64_t used = used_pages_[static_cast<std::size_t>(sequence)];
  WINNOW_CHECK(used >= 0, "sequence ", sequence, " is not open");
  return used;
}

int32_t KvCache::page(int32_t sequence, int64_t index) const {
  WINNOW_DCHECK(index >= 0 && index < pages_of(sequence), "page ", index, " of ", pages_of(sequence));
  return table_[static_cast<std::size_t>(sequence * table_width_ + index)];
}

int32_t KvCache::slot(int32_t sequence, int64_t position) const {
  return page(sequence, position / shape_.page_size) * shape_.page_size +
         static_cast<int32_t>(position % shape_.page_size);
}

PagedRows KvCache::rows(int64_t layer) const {
  const int64_t bytes = row_bytes(shape_.rows, shape_.d_nope, shape_.d_rope);
  return {latent_pools_[static_cast<std::size_t>(layer)].data(), allocator_.pages(), bytes * shape_.page_size, bytes};
}

PagedKeys KvCache::keys(int64_t layer) const {
  if (!shape_.has_keys(layer)) return {};
  return {key_pools_[static_cast<std::size_t>(layer)].data(), allocator_.pages(),
          key_page_bytes(shape_.keys, shape_.page_size, shape_.index_dim)};
}

TensorView<const int32_t> KvCache::page_table() const {
  return {table_.data(), {static_cast<int64_t>(used_pages_.size()), table_width_}};
}

}  // namespace winnow
