// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a model go: contiguous runs of layers over equal devices, exact from tensor infos.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/kv_cache.hpp"
#include "formats/checkpoint.hpp"
#include "models/tensors.hpp"
#include "plan/plan.hpp"

namespace winnow {

// Weights of one piece that stays together on a device.
struct Piece {
  int64_t weight_bytes = 0;
  int64_t cache_bytes_per_page = 0;  // of one page of one sequence in this layer
};

struct WeightTotals {
  // Of needed tensors that are there; experts apart, as a token reads a part of them.
  int64_t dense_bytes = 0, expert_bytes = 0, embedding_bytes = 0, head_bytes = 0;
  double dense_elements = 0, expert_elements = 0, head_elements = 0;
  // A file without a head uses the embedding for it: read as head, stored once.
  int64_t head_read_bytes = 0;
  [[nodiscard]] int64_t bytes() const { return dense_bytes + expert_bytes + embedding_bytes + head_bytes; }
};

// front, layer 0 .. layers - 1, back: the embedding goes with the first layer, norm and head with the last.
struct Budget {
  std::vector<Piece> pieces;
  WeightTotals totals;
};

// On several devices a tied head is a second copy of the embedding, with the last layer.
[[nodiscard]] Budget make_budget(const Checkpoint& checkpoint, const ModelConfig& config, const TensorReport& tensors,
                                 const CacheShape& cache, int32_t devices);

// What every device must hold beside its pieces, and what it has.
struct DeviceRoom {
  int32_t devices = 1;
  int64_t usable_bytes = 0;     // of one device
  int64_t workspace_bytes = 0;  // on every device
};

// The reserve: 512 MiB and 3 % stay with the driver and the system.
[[nodiscard]] int64_t usable_of(int64_t memory_bytes);
[[nodiscard]] int64_t memory_for(int64_t usable_bytes);  // the inverse, rounded up

// The split whose fullest device is least full, or nothing when no split into contiguous runs fits. pages: of all
// sequences together.
[[nodiscard]] std::optional<std::vector<DeviceShare>> split(const Budget& budget, const DeviceRoom& room,
                                                            int64_t pages);
[[nodiscard]] bool fits(const Budget& budget, const DeviceRoom& room, int64_t pages);
// Largest number of pages, at most `limit`, that fits; 0 when not one does.
[[nodiscard]] int64_t most_pages(const Budget& budget, const DeviceRoom& room, int64_t limit);
// Fewest devices of this kind that hold it, or nothing when even one layer each is too much.
[[nodiscard]] std::optional<int32_t> fewest_devices(const Budget& budget, DeviceRoom room, int64_t pages);

}  // namespace winnow
