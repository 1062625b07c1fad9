// SPDX-License-Identifier: Apache-2.0
// Small text files beside the weights: config.json, tokenizer.json, chat_template.jinja.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.hpp"

namespace winnow {

// The whole file. not_found when absent; unsupported above max_bytes, so that a wrong path cannot fill the memory.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, int64_t max_bytes);

// The same, but an absent file is an empty string.
[[nodiscard]] Result<std::string> read_text_file_if_present(const std::string& path, int64_t max_bytes);

}  // namespace winnow
