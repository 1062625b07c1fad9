// SPDX-License-Identifier: Apache-2.0
#include "plan/budget.hpp"

#include <algorithm>

#include "core/checked.hpp"

namespace winnow {
namespace {

constexpr int64_t kReserveBytes = int64_t{512} << 20;
constexpr int64_t kReservePercent = 3;

bool is_embedding(const std::string& name) {
  return name.find("token_embd") != std::string::npos || name.find("embed_tokens") != std::string::npos;
}

// The head is the one matrix outside the layers that is not the embedding; the final norm is a vector.
bool is_head(const TensorNeed& need) { return need.layer < 0 && need.dims.size() >= 2 && !is_embedding(need.name); }

void count(WeightTotals& totals, const TensorNeed& need, const TensorInfo& tensor) {
  const auto elements = static_cast<double>(tensor.elements());
  if (need.layer < 0 && is_embedding(need.name)) {
    totals.embedding_bytes += tensor.bytes;
  } else if (is_head(need)) {
    totals.head_bytes += tensor.bytes;
    totals.head_elements += elements;
  } else if (need.per_expert) {
    totals.expert_bytes += tensor.bytes;
    totals.expert_elements += elements;
  } else {
    totals.dense_bytes += tensor.bytes;
    totals.dense_elements += elements;
  }
}

int64_t piece_bytes(const Piece& piece, int64_t pages) {
  return piece.weight_bytes + piece.cache_bytes_per_page * pages;
}

// Greedy first fit under a cap is exact for contiguous runs: whatever starts a device later can only help less.
// Returns the first piece of each device, or nothing when more devices than given are needed.
std::optional<std::vector<std::size_t>> starts_under(const Budget& budget, const DeviceRoom& room, int64_t pages,
                                                     int64_t cap) {
  std::vector<std::size_t> starts = {0};
  int64_t filled = room.workspace_bytes;
  for (std::size_t i = 0; i < budget.pieces.size(); ++i) {
    const int64_t bytes = piece_bytes(budget.pieces[i], pages);
    if (room.workspace_bytes + bytes > cap) return std::nullopt;
    if (filled + bytes > cap) {
      if (static_cast<int32_t>(starts.size()) == room.devices) return std::nullopt;
      starts.push_back(i);
      filled = room.workspace_bytes;
    }
    filled += bytes;
  }
  return starts;
}

std::vector<DeviceShare> shares_from(const Budget& budget, const DeviceRoom& room, int64_t pages,
                                     const std::vector<std::size_t>& starts) {
  std::vector<DeviceShare> shares;
  const std::size_t last_layer = budget.pieces.size() - 1;  // pieces: front, layers, back
  for (std::size_t d = 0; d < starts.size(); ++d) {
    const std::size_t end = d + 1 < starts.size() ? starts[d + 1] : budget.pieces.size();
    DeviceShare share;
    share.device = static_cast<int32_t>(d);
    share.workspace_bytes = room.workspace_bytes;
    const std::size_t first = std::max<std::size_t>(starts[d], 1), behind = std::min(end, last_layer);
    share.first_layer = static_cast<int64_t>(first) - 1;
    share.layers = behind > first ? static_cast<int64_t>(behind - first) : 0;
    for (std::size_t i = starts[d]; i < end; ++i) {
      share.weight_bytes += budget.pieces[i].weight_bytes;
      share.cache_bytes += budget.pieces[i].cache_bytes_per_page * pages;
    }
    shares.push_back(share);
  }
  return shares;
}

}  // namespace

Budget make_budget(const Checkpoint& checkpoint, const ModelConfig& config, const TensorReport& tensors,
                   const CacheShape& cache, int32_t devices) {
  Budget budget;
  budget.pieces.resize(static_cast<std::size_t>(config.layers) + 2);
  for (const TensorNeed& need : tensors.needed) {
    const TensorInfo* tensor = checkpoint.find(need.name);
    if (tensor == nullptr) continue;  // reported as missing
    count(budget.totals, need, *tensor);
    const bool front = need.layer < 0 && is_embedding(need.name);
    const std::size_t at = front            ? 0
                           : need.layer < 0 ? budget.pieces.size() - 1
                                            : static_cast<std::size_t>(need.layer) + 1;
    budget.pieces[at].weight_bytes += tensor->bytes;
  }
  WeightTotals& totals = budget.totals;
  totals.head_read_bytes = totals.head_bytes;
  if (totals.head_bytes == 0) {
    totals.head_read_bytes = totals.embedding_bytes;
    totals.head_elements = static_cast<double>(config.vocab * config.hidden);
    if (devices > 1) budget.pieces.back().weight_bytes += totals.embedding_bytes;
  }
  const int64_t latent = row_bytes(cache.rows, cache.d_nope, cache.d_rope) * cache.page_size;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t keys = cache.has_keys(layer) ? key_page_bytes(cache.keys, cache.page_size, cache.index_dim) : 0;
    budget.pieces[static_cast<std::size_t>(layer) + 1].cache_bytes_per_page = latent + keys;
  }
  return budget;
}

int64_t usable_of(int64_t memory_bytes) {
  return std::max<int64_t>(0, memory_bytes - memory_bytes / 100 * kReservePercent - kReserveBytes);
}

int64_t memory_for(int64_t usable_bytes) { return ceil_div(usable_bytes + kReserveBytes, 100 - kReservePercent) * 100; }

std::optional<std::vector<DeviceShare>> split(const Budget& budget, const DeviceRoom& room, int64_t pages) {
  if (!starts_under(budget, room, pages, room.usable_bytes)) return std::nullopt;
  int64_t low = 0, high = room.usable_bytes;  // smallest cap that fits, by bisection: low does not fit, high does
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (starts_under(budget, room, pages, middle) ? high : low) = middle;
  }
  return shares_from(budget, room, pages, *starts_under(budget, room, pages, high));
}

bool fits(const Budget& budget, const DeviceRoom& room, int64_t pages) {
  return starts_under(budget, room, pages, room.usable_bytes).has_value();
}

int64_t most_pages(const Budget& budget, const DeviceRoom& room, int64_t limit) {
  if (limit <= 0 || !fits(budget, room, 1)) return 0;
  if (fits(budget, room, limit)) return limit;
  int64_t low = 1, high = limit;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(budget, room, middle) ? low : high) = middle;
  }
  return low;
}

std::optional<int32_t> fewest_devices(const Budget& budget, DeviceRoom room, int64_t pages) {
  room.devices = static_cast<int32_t>(budget.pieces.size());
  const auto starts = starts_under(budget, room, pages, room.usable_bytes);
  if (!starts) return std::nullopt;
  return static_cast<int32_t>(starts->size());  // greedy uses as few as there can be
}

}  // namespace winnow
