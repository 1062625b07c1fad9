// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.hpp"

#include <algorithm>

namespace winnow {

void AddedTokens::add(std::string_view text, int32_t id) {
  if (text.empty() || !ids_.emplace(std::string(text), id).second) return;
  auto& entries = by_first_byte_[static_cast<uint8_t>(text[0])];
  const auto at =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.text.size() < text.size(); });
  entries.insert(at, {std::string(text), id});
}

AddedTokens::Match AddedTokens::find_from(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const Entry& entry : by_first_byte_[static_cast<uint8_t>(text[at])]) {
      if (text.compare(at, entry.text.size(), entry.text) == 0) return {at, entry.text.size(), entry.id};
    }
  }
  return {};
}

int32_t AddedTokens::id_of(std::string_view text) const {
  const auto at = ids_.find(std::string(text));
  return at == ids_.end() ? -1 : at->second;
}

}  // namespace winnow
