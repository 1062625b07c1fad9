// SPDX-License-Identifier: Apache-2.0
// Opening a GGUF model: one file, or every shard of a split one.
#pragma once

#include <optional>
#include <string>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow::gguf {

// "dir/model-00002-of-00005.gguf" -> {"dir/model", 2, 5}
struct ShardName {
  std::string prefix;
  int64_t number = 0;  // 1-based
  int64_t count = 0;
  [[nodiscard]] std::string path(int64_t other_number) const;
};
[[nodiscard]] std::optional<ShardName> shard_of_name(const std::string& path);

// path: any shard. Metadata are those of the first. The first shard may hold no tensors at all.
[[nodiscard]] Result<Checkpoint> open(const std::string& path);

}  // namespace winnow::gguf
