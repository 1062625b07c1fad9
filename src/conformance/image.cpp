// SPDX-License-Identifier: Apache-2.0
#include "conformance/image.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/random.hpp"
#include "core/check.hpp"
#include "core/checked.hpp"

namespace winnow::conformance {
namespace {
constexpr unsigned char kGuard = 0xA5;
constexpr unsigned char kPoison = 0xFF;

int64_t first_other(const std::byte* data, int64_t bytes, unsigned char value) {
  for (int64_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(data[i]) != value) return i;
  }
  return -1;
}
}  // namespace

std::byte* Block::storage() const {
  const auto address = reinterpret_cast<uintptr_t>(memory.get());
  const auto aligned = static_cast<uintptr_t>(round_up(static_cast<int64_t>(address), kPayloadAlignment));
  return memory.get() + (aligned - address);
}

std::byte* Image::add(std::string name, Role role, int64_t bytes) {
  Block block;
  block.name = std::move(name);
  block.role = role;
  block.payload = round_up(kGuardBytes, kPayloadAlignment);
  block.bytes = bytes;
  block.total = block.payload + bytes + kGuardBytes;
  block.memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(block.total + kPayloadAlignment));
  std::byte* storage = block.storage();
  std::memset(storage, kGuard, static_cast<std::size_t>(block.payload));
  std::memset(storage + block.payload, kPoison, static_cast<std::size_t>(bytes));
  std::memset(storage + block.payload + bytes, kGuard, static_cast<std::size_t>(kGuardBytes));
  blocks_.push_back(std::move(block));
  return blocks_.back().data();
}

std::byte* Image::alias(const std::byte* payload, int64_t before) {
  const Place place = locate(payload);
  const uintptr_t pointer = reinterpret_cast<uintptr_t>(payload) - static_cast<uintptr_t>(before);
  aliases_.push_back({pointer, place.block, place.offset - before});
  return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr): outside its block on purpose
}

void Image::seal() {
  for (Block& block : blocks_) {
    block.hash = hash_bytes(block.data(), static_cast<std::size_t>(block.bytes));
    if (block.role == Role::cache) block.original.assign(block.data(), block.data() + block.bytes);
  }
}

void Image::begin_run() {
  for (Block& block : blocks_) {
    if (block.role == Role::output) std::memset(block.data(), kPoison, static_cast<std::size_t>(block.bytes));
    if (block.role == Role::cache) std::copy(block.original.begin(), block.original.end(), block.data());
  }
}

std::string Image::violations() const {
  std::string found;
  for (const Block& block : blocks_) {
    if (const int64_t at = first_other(block.storage(), block.payload, kGuard); at >= 0) {
      found += concat(block.name, ": written ", block.payload - at, " bytes before its start; ");
    }
    if (const int64_t at = first_other(block.data() + block.bytes, kGuardBytes, kGuard); at >= 0) {
      found += concat(block.name, ": written ", at, " bytes behind its end; ");
    }
    if (block.role == Role::input && block.hash != hash_bytes(block.data(), static_cast<std::size_t>(block.bytes))) {
      found += concat(block.name, ": an input was written; ");
    }
  }
  return found;
}

const Block& Image::block(const std::string& name) const {
  const auto found =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.name == name; });
  WINNOW_CHECK(found != blocks_.end(), "no block ", name);
  return *found;
}

Image::Place Image::locate(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const Alias& alias : aliases_) {
    if (alias.pointer == address) return {alias.block, alias.offset};
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto* at = static_cast<const std::byte*>(pointer);
    if (at >= blocks_[i].data() && at <= blocks_[i].data() + blocks_[i].bytes) return {i, at - blocks_[i].data()};
  }
  WINNOW_CHECK(false, "a pointer that belongs to no block");
  return {};
}

namespace {
template <class T>
void move_pointer(T*& pointer, const Move& move) {
  if (pointer != nullptr) pointer = static_cast<T*>(move(pointer));
}
template <class T>
void move_view(TensorView<T>& view, const Move& move) {
  move_pointer(view.data, move);
}
}  // namespace

SparseMlaBuffers relocated(SparseMlaBuffers b, const Move& move) {
  move_pointer(b.q.data, move);
  move_pointer(b.cache.data, move);
  move_view(b.topk_slots, move);
  move_view(b.topk_len, move);
  move_view(b.sink, move);
  move_pointer(b.out.data, move);
  move_view(b.lse, move);
  return b;
}

IndexSelectBuffers relocated(IndexSelectBuffers b, const Move& move) {
  move_pointer(b.q.data, move);
  move_view(b.weight, move);
  move_pointer(b.keys.data, move);
  move_view(b.page_table, move);
  move_view(b.seq, move);
  move_view(b.start, move);
  move_view(b.len, move);
  move_view(b.out, move);
  move_view(b.out_len, move);
  return b;
}

CacheWriteBuffers relocated(CacheWriteBuffers b, const Move& move) {
  move_pointer(b.latent, move);
  move_pointer(b.rope, move);
  move_pointer(b.key, move);
  move_view(b.slots, move);
  move_pointer(b.cache.data, move);
  move_pointer(b.key_cache.data, move);
  return b;
}

RowGatherBuffers relocated(RowGatherBuffers b, const Move& move) {
  move_pointer(b.cache.data, move);
  move_view(b.slots, move);
  move_view(b.out, move);
  return b;
}

MergeBuffers relocated(MergeBuffers b, const Move& move) {
  move_view(b.part_out, move);
  move_view(b.part_lse, move);
  move_view(b.sink, move);
  move_pointer(b.out.data, move);
  move_view(b.lse, move);
  return b;
}

}  // namespace winnow::conformance
