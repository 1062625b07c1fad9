// SPDX-License-Identifier: Apache-2.0
// One case as text: a kind and key=value pairs on a line of cases/**/*.case (format: cases/README.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace winnow::conformance {

struct CaseSpec {
  std::string kind;   // mla, select, write, gather, merge
  std::string where;  // "cases/mla/lists.case:12"
  bool slow = false;
  std::map<std::string, std::string, std::less<>> values;  // every key of the kind, defaults filled in
  std::string given;                                       // the pairs that the line gives, as text

  [[nodiscard]] std::string name() const { return concat(where, " ", kind, " ", given); }
  [[nodiscard]] const std::string& word(std::string_view key) const;
  [[nodiscard]] int64_t integer(std::string_view key) const;  // checked when parsed
};

// Lines of one file; a comma list of values gives one case for each combination. Errors name the line.
[[nodiscard]] Result<std::vector<CaseSpec>> parse_cases(std::string_view text, const std::string& file);

// Every *.case file below a folder, sorted by path. io_error when there is none.
[[nodiscard]] Result<std::vector<CaseSpec>> load_cases(const std::string& folder);

}  // namespace winnow::conformance
