// SPDX-License-Identifier: Apache-2.0
// Pre-tokeniser: cuts text into pieces with a sequence of patterns. Each pattern cuts the pieces that the previous one
// left; matches and the gaps between them are pieces of their own ("Isolated"). Nothing is dropped: the pieces in
// order are the text.
//
// Patterns are written for Oniguruma or Rust's fancy-regex and run in PCRE2 (UTF, Unicode classes, JIT). What differs
// is translated (splitter.cpp lists it); what has no counterpart is refused by name. A pattern that needs more work
// than a limit that grows with the text is an error, so that no text and no tokenizer.json can hang the program.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace winnow {

class Splitter {
 public:
  // unsupported or corrupt_data, naming the pattern, when one does not compile.
  [[nodiscard]] static Result<Splitter> create(const std::vector<std::string>& patterns);

  // text must be UTF-8. Pieces are views of text. Safe from several threads at once.
  [[nodiscard]] Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

// The same pattern in PCRE2's dialect; exposed for tests.
[[nodiscard]] Result<std::string> translate_pattern(std::string_view pattern);

}  // namespace winnow
