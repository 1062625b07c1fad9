// SPDX-License-Identifier: Apache-2.0
// Paged cache of a model on one host: latent rows of every layer, index keys of the layers that run their own indexer.
//
// A page is page_size consecutive positions of one sequence, in all layers at once: page id p names the same page in
// every latent pool and in every key pool, so latent and keys are allocated, shared and freed together. One page table
// row per sequence maps position / page_size to a page. Pages are reference-counted: a full page may stand in several
// page tables (a shared prefix) and is then immutable by agreement; the last release makes it free again.
//
// Memory is reserved at creation and touched page by page, so a cache planned for a long context takes memory only as
// the context grows. The cache owns all pools; views are valid as long as it lives. Not thread-safe: one engine owns
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "contract/paged.hpp"
#include "contract/row_format.hpp"
#include "core/buffer.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"

namespace winnow {

inline constexpr int32_t kPageSize = 64;  // slots per page: what the published sparse-MLA caches use

struct CacheShape {
  int64_t layers = 0;
  std::vector<bool> full_indexer;  // [layers] true: the layer has index keys; empty: no layer has
  int32_t d_nope = 0, d_rope = 0;  // elements of a latent row
  int32_t index_dim = 0;           // elements of an index key, 0: none
  int32_t page_size = kPageSize;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  [[nodiscard]] bool has_keys(int64_t layer) const;
  [[nodiscard]] int64_t key_layers() const;
};

// The same functions size the plan and the pools, so that a plan cannot lie. All layers together.
[[nodiscard]] int64_t latent_bytes_per_token(const CacheShape& shape);
[[nodiscard]] int64_t key_bytes_per_token(const CacheShape& shape);
[[nodiscard]] int64_t cache_bytes_per_token(const CacheShape& shape);  // both; times page_size it is one page, exactly
[[nodiscard]] int64_t cache_bytes_per_page(const CacheShape& shape);
[[nodiscard]] int64_t pages_for(const CacheShape& shape, int64_t tokens);  // pages of one sequence of that length

// Hands out page ids in [0, pages), with reference counts. The lowest free id comes first, so that equal histories
// give equal page tables.
class PageAllocator {
 public:
  explicit PageAllocator(int64_t pages);
  // A free page with one reference, or -1 when none is left.
  [[nodiscard]] int32_t allocate();
  void retain(int32_t page);                             // one reference more; the page must be in use
  void release(int32_t page);                            // one less; free at zero
  [[nodiscard]] int32_t references(int32_t page) const;  // 0: free
  [[nodiscard]] int64_t pages() const { return static_cast<int64_t>(references_.size()); }
  [[nodiscard]] int64_t available() const { return static_cast<int64_t>(free_.size()); }

 private:
  std::vector<int32_t> references_;  // [pages]
  std::vector<int32_t> free_;        // min-heap of free ids
};

class KvCache {
 public:
  // pages: of the pool, shared by all sequences. max_sequences: rows of the page table. max_context: positions of one
  // sequence, which gives the row its width. invalid_argument for sizes without meaning or a pool beyond int32 slots;
  // out_of_memory when the address space is refused.
  [[nodiscard]] static Result<std::unique_ptr<KvCache>> create(const CacheShape& shape, int64_t pages,
                                                               int32_t max_sequences, int64_t max_context);

  // Sequences. An id is a row of the page table, reused after close.
  [[nodiscard]] Result<int32_t> open();  // out_of_memory when every row is taken
  void close(int32_t sequence);          // releases its pages

  // Pages for positions [0, tokens) exist afterwards; all or nothing. out_of_memory names pages wanted and free,
  // invalid_argument when tokens exceed max_context.
  [[nodiscard]] Status reserve(int32_t sequence, int64_t tokens);
  // Gives back pages that positions [0, tokens) do not need.
  void truncate(int32_t sequence, int64_t tokens);
  // Puts the first `pages` pages of `from` in front of the empty sequence `to`, as references. Whole pages only: both
  // sequences must never write into them again.
  [[nodiscard]] Status share_prefix(int32_t from, int32_t to, int64_t pages);

  [[nodiscard]] int64_t pages_of(int32_t sequence) const;
  [[nodiscard]] int32_t page(int32_t sequence, int64_t index) const;  // must be reserved
  // Slot of a position, which must be reserved: page * page_size + offset.
  [[nodiscard]] int32_t slot(int32_t sequence, int64_t position) const;

  // Memory as the contract takes it.
  [[nodiscard]] PagedRows rows(int64_t layer) const;
  [[nodiscard]] PagedKeys keys(int64_t layer) const;           // no data on a layer without an indexer of its own
  [[nodiscard]] TensorView<const int32_t> page_table() const;  // [max_sequences, pages of max_context], -1 = no page

  [[nodiscard]] const CacheShape& shape() const { return shape_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }  // reserved, all pools
  [[nodiscard]] int64_t free_pages() const { return allocator_.available(); }
  [[nodiscard]] PageAllocator& allocator() { return allocator_; }  // references beyond sequences (a prefix index)

 private:
  KvCache(CacheShape shape, int64_t pages, int32_t max_sequences, int64_t max_context);
  [[nodiscard]] Status allocate_pools();

  CacheShape shape_;
  PageAllocator allocator_;
  int64_t max_context_ = 0;
  int64_t table_width_ = 0;
  int64_t bytes_ = 0;
  std::vector<Buffer> latent_pools_;  // [layers]
  std::vector<Buffer> key_pools_;     // [layers], empty on layers without keys
  std::vector<int32_t> table_;        // [max_sequences, table_width]
  std::vector<int64_t> used_pages_;   // [max_sequences], -1: row not in use
};

}  // namespace winnow
