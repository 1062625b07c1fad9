// SPDX-License-Identifier: Apache-2.0
// The text of a user turn: a document from a file, a newline, the prompt.
#pragma once

#include <string>

#include "core/status.hpp"

namespace winnow::cli {

// path empty: the prompt alone. prompt empty: the document alone. Errors name the file: not found, unreadable, over
// 64 MiB, not UTF-8 (with the byte). invalid_argument when both are empty.
[[nodiscard]] Result<std::string> document_and_prompt(const std::string& path, const std::string& prompt);

}  // namespace winnow::cli
