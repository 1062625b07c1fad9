// SPDX-License-Identifier: Apache-2.0
// Image: all memory of one case on the host, as the operation sees it, with traps around it.
//
// A block is guard zone, payload, guard zone. Payloads begin as 0xFF bytes, which is NaN in f32, bf16 and e4m3 and -1
// in int32: what a case does not fill on purpose (unlisted slots, padding between rows, outputs) shows when it is read
// or left unwritten. A target that runs elsewhere copies whole blocks there, guards included, moves the pointers with
// relocated(), runs, and copies whole blocks back; then violations() sees its stray writes too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/cache_write.hpp"
#include "contract/index_select.hpp"
#include "contract/merge.hpp"
#include "contract/sparse_mla.hpp"

namespace winnow::conformance {

inline constexpr int64_t kGuardBytes = 512;
inline constexpr int64_t kPayloadAlignment = 256;

enum class Role {
  input,   // must not change
  output,  // begins as 0xFF before every run
  cache,   // written and read: goes back to its first content before every run
};

struct Block {
  std::string name;
  Role role = Role::input;
  std::unique_ptr<std::byte[]> memory;
  int64_t total = 0;                // bytes to copy from storage(): guards and payload
  int64_t payload = 0;              // offset of the payload from storage(), a multiple of kPayloadAlignment
  int64_t bytes = 0;                // of the payload
  uint64_t hash = 0;                // of the payload of an input, once sealed
  std::vector<std::byte> original;  // of a cache, once sealed
  [[nodiscard]] std::byte* storage() const;
  [[nodiscard]] std::byte* data() const { return storage() + payload; }
};

class Image {
 public:
  // A new block of `bytes` (0 is fine) of 0xFF. Pointers stay valid as long as the image lives.
  std::byte* add(std::string name, Role role, int64_t bytes);
  template <class T>
  T* add_array(std::string name, Role role, int64_t count) {
    return reinterpret_cast<T*>(add(std::move(name), role, count * static_cast<int64_t>(sizeof(T))));
  }
  // A pointer `before` bytes in front of a block's payload, for pools whose low slots do not exist.
  std::byte* alias(const std::byte* payload, int64_t before);

  void seal();       // inputs are complete: remembers them
  void begin_run();  // poisons outputs, restores caches
  // Empty when guards and inputs are as sealed; otherwise what was damaged, with the first byte.
  [[nodiscard]] std::string violations() const;

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const Block& block(const std::string& name) const;

  // Which block a host pointer of the case belongs to, and its distance from the payload (negative for an alias).
  struct Place {
    std::size_t block;
    int64_t offset;
  };
  [[nodiscard]] Place locate(const void* pointer) const;

 private:
  struct Alias {
    uintptr_t pointer;
    std::size_t block;
    int64_t offset;
  };
  std::vector<Block> blocks_;
  std::vector<Alias> aliases_;
};

// The same views with every non-null pointer replaced by move(pointer).
using Move = std::function<void*(const void*)>;
[[nodiscard]] SparseMlaBuffers relocated(SparseMlaBuffers buffers, const Move& move);
[[nodiscard]] IndexSelectBuffers relocated(IndexSelectBuffers buffers, const Move& move);
[[nodiscard]] CacheWriteBuffers relocated(CacheWriteBuffers buffers, const Move& move);
[[nodiscard]] RowGatherBuffers relocated(RowGatherBuffers buffers, const Move& move);
[[nodiscard]] MergeBuffers relocated(MergeBuffers buffers, const Move& move);

}  // namespace winnow::conformance
