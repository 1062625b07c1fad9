// SPDX-License-Identifier: Apache-2.0
// What a file that is not the expected container probably is: the likely cause for an error message.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace winnow {

// "an HTML page (the download was answered with a web page)", "a git-lfs pointer …", or "an unknown format that begins
// with 1f 8b 08 00". Never empty.
[[nodiscard]] std::string likely_kind(std::span<const std::byte> bytes);

[[nodiscard]] bool looks_like_gguf(std::span<const std::byte> bytes);
// A plausible header length followed by '{'.
[[nodiscard]] bool looks_like_safetensors(std::span<const std::byte> bytes);

}  // namespace winnow
