// SPDX-License-Identifier: Apache-2.0
// The byte alphabet of byte-level BPE: every byte has a printable character, so that a vocabulary is readable text.
// Bytes 33-126, 161-172 and 174-255 are their own code points; the other 68, in increasing order, are 256, 257, ...
// Worked: the space (byte 32) is the 33rd of the others, so U+0120, "Ġ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

// The bytes that a vocabulary string stands for; nothing when a character is outside the alphabet.
[[nodiscard]] std::optional<std::string> bytes_from_alphabet(std::string_view text);

}  // namespace winnow
