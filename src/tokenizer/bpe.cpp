// SPDX-License-Identifier: Apache-2.0
// Merging keeps the symbols of a piece in a doubly linked list and the possible merges in a heap ordered by rank, then
// by place. An entry whose symbols have changed since it was pushed is stale and skipped.
#include "tokenizer/bpe.hpp"

#include <queue>

namespace winnow {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct Symbol {
  int32_t token;  // -1: merged into its left neighbour
  int32_t previous, next;
};

struct Candidate {
  int32_t rank, left;               // symbol index of the left half
  int32_t left_token, right_token;  // as they were when this was pushed
  int32_t merged;
  bool operator<(const Candidate& other) const {  // std::priority_queue pops the largest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

std::string shown(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes.substr(0, 40)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte > 32 && byte < 127) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace

Result<Bpe> Bpe::create(const std::vector<std::string>& tokens, const std::vector<Merge>& merges, bool ignore_merges) {
  Bpe bpe;
  bpe.ignore_merges_ = ignore_merges;
  bpe.byte_token_.fill(-1);
  bpe.id_of_.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string& bytes = tokens[id];
    if (bytes.empty()) continue;
    const auto [at, fresh] = bpe.id_of_.emplace(bytes, static_cast<int32_t>(id));
    if (!fresh) {
      return error(StatusCode::corrupt_data, "tokens ", at->second, " and ", id, " of the vocabulary are both \"",
                   shown(bytes), "\"");
    }
    if (bytes.size() == 1) bpe.byte_token_[static_cast<uint8_t>(bytes[0])] = static_cast<int32_t>(id);
  }
  bpe.merges_.reserve(merges.size());
  const auto find = [&](const std::string& bytes) {
    const auto at = bpe.id_of_.find(bytes);
    return at == bpe.id_of_.end() ? -1 : at->second;
  };
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = find(left), right_id = find(right), merged_id = find(left + right);
    if (left_id < 0 || right_id < 0 || merged_id < 0) {
      const std::string& missing = left_id < 0 ? left : right_id < 0 ? right : left + right;
      return error(StatusCode::corrupt_data, "merge ", rank, " is \"", shown(left), "\" + \"", shown(right),
                   "\", but the vocabulary has no token \"", shown(missing), "\"");
    }
    bpe.merges_.try_emplace(pair_key(left_id, right_id), Merged{static_cast<int32_t>(rank), merged_id});
  }
  return bpe;
}

std::optional<Bpe::Merged> Bpe::merge_of(int32_t left, int32_t right) const {
  const auto at = merges_.find(pair_key(left, right));
  if (at == merges_.end()) return std::nullopt;
  return at->second;
}

Status Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.empty()) return {};
  if (ignore_merges_) {
    if (const auto whole = id_of_.find(std::string(piece)); whole != id_of_.end()) {
      out.push_back(whole->second);
      return {};
    }
  }
  const auto count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t token = byte_token_[static_cast<uint8_t>(piece[i])];
    if (token < 0) {
      return error(
          StatusCode::corrupt_data, "the vocabulary has no token for the byte \"", shown(piece.substr(i, 1)),
          "\"; a byte-level vocabulary has one for each of the 256 (a header-only file may have placeholders)");
    }
    symbols[i] = {token, i - 1, i + 1 < count ? i + 1 : -1};
  }

  std::priority_queue<Candidate> heap;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const int32_t left_token = symbols[left].token, right_token = symbols[symbols[left].next].token;
    if (const auto merge = merge_of(left_token, right_token)) {
      heap.push({merge->rank, left, left_token, right_token, merge->token});
    }
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.left];
    if (left.token != best.left_token || left.next < 0 || symbols[left.next].token != best.right_token) continue;
    Symbol& right = symbols[left.next];
    left.token = best.merged;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(best.left);
    consider(left.previous);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].token);
  return {};
}

}  // namespace winnow
