// SPDX-License-Identifier: Apache-2.0
// Vocabulary and merges of byte-level BPE, keyed by raw bytes (the byte alphabet is undone when loading).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.hpp"

namespace winnow {

class Bpe {
 public:
  // tokens[id]: raw bytes, empty for an id that text cannot become. Two ids with equal bytes: corrupt_data.
  // merges: pairs of raw byte strings, rank = index; both sides and their sum must be tokens, else corrupt_data.
  using Merge = std::pair<std::string, std::string>;
  [[nodiscard]] static Result<Bpe> create(const std::vector<std::string>& tokens, const std::vector<Merge>& merges,
                                          bool ignore_merges);

  // Appends the tokens of one pre-token. n log n in its bytes. corrupt_data when a byte has no token.
  [[nodiscard]] Status encode(std::string_view piece, std::vector<int32_t>& out) const;

  [[nodiscard]] bool ignore_merges() const { return ignore_merges_; }

 private:
  struct Merged {
    int32_t rank, token;
  };
  [[nodiscard]] std::optional<Merged> merge_of(int32_t left, int32_t right) const;

  std::unordered_map<std::string, int32_t> id_of_;
  std::unordered_map<uint64_t, Merged> merges_;  // left << 32 | right
  std::array<int32_t, 256> byte_token_{};
  bool ignore_merges_ = false;
};

}  // namespace winnow
