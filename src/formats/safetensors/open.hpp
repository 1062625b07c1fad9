// SPDX-License-Identifier: Apache-2.0
// Opening a safetensors checkpoint: a folder, an index, one shard of several, or a single file.
#pragma once

#include <string>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"

namespace winnow::safetensors {

// Whether the folder holds model.safetensors, an index, or a single .safetensors file.
[[nodiscard]] bool in_folder(const std::string& folder);

// A shard brings its siblings, by the index beside it or by the numbers in its name. config.json, tokenizer.json and
// the like are read from the same folder; absent ones are empty strings.
[[nodiscard]] Result<Checkpoint> open(const std::string& path);

}  // namespace winnow::safetensors
