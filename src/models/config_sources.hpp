// SPDX-License-Identifier: Apache-2.0
// The two places that a ModelConfig comes from. Values are as the file says; read_config checks ranges and relations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"

namespace winnow {

[[nodiscard]] Result<ModelConfig> read_gguf_config(const Checkpoint& checkpoint);
[[nodiscard]] Result<ModelConfig> read_hf_config(const std::string& config_json);

// IndexShare (GLM-5.2 and later, arXiv 2603.12201): layer i runs its own indexer when max(i - offset + 1, 0) is a
// multiple of frequency. frequency >= 1.
[[nodiscard]] std::vector<bool> index_share_formula(int64_t layers, int64_t frequency, int64_t offset);
// corrupt_data when the formula cannot take them: run before it on what a file says.
[[nodiscard]] Status check_index_share(int64_t frequency, int64_t offset);
inline constexpr int64_t kDefaultShareFrequency = 1, kDefaultShareOffset = 2;

}  // namespace winnow
