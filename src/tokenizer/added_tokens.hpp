// SPDX-License-Identifier: Apache-2.0
// Added tokens: literal strings found in text before anything else. Leftmost first, the longest wins at one place.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace winnow {

class AddedTokens {
 public:
  // Two ids with one text: the first stays.
  void add(std::string_view text, int32_t id);

  struct Match {
    std::size_t begin = 0, bytes = 0;  // bytes 0: none
    int32_t id = -1;
  };
  [[nodiscard]] Match find_from(std::string_view text, std::size_t from) const;
  [[nodiscard]] int32_t id_of(std::string_view text) const;  // -1: no such token

 private:
  // By first byte, longest first.
  struct Entry {
    std::string text;
    int32_t id;
  };
  std::array<std::vector<Entry>, 256> by_first_byte_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace winnow
