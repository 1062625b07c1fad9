// SPDX-License-Identifier: Apache-2.0
// Which tensors the graph of a model needs, under the names of its container, and what a file has of them.
//
// Reads headers only. The loader, `inspect` and `plan` ask the same list, so that they cannot disagree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"

namespace winnow {

struct TensorNeed {
  std::string name;           // as this checkpoint names it
  std::vector<int64_t> dims;  // GGUF order: dims[0] is the contiguous row length
  int64_t layer = -1;         // -1: not of a layer
  bool per_expert = false;    // weights of routed experts: a token reads experts_used of experts of their bytes
};

struct TensorReport {
  std::vector<TensorNeed> needed;
  std::vector<std::string> missing;      // needed and absent
  std::vector<std::string> wrong_shape;  // one message each, with dims wanted and found
  std::vector<std::string> unreadable;   // one message each: a storage type without a decoder, by name
  std::vector<std::string> unused;       // in the file, used by nothing
  std::vector<std::string> mtp;          // of MTP (next-token prediction) layers: recognised, left aside
  int64_t needed_bytes = 0;              // of the needed tensors that are there
  [[nodiscard]] bool complete() const { return missing.empty() && wrong_shape.empty() && unreadable.empty(); }
  // not_found naming the first missing tensor and how many there are, corrupt_data with the first wrong shape, or
  // unsupported with the first type that cannot be read.
  [[nodiscard]] Status status() const;
};

// dense: the indexer is ignored, its tensors are then not needed (and not reported as unused).
[[nodiscard]] TensorReport report_tensors(const Checkpoint& checkpoint, const ModelConfig& config, bool dense = false);

}  // namespace winnow
