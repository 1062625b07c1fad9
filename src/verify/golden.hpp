// SPDX-License-Identifier: Apache-2.0
// Golden: what a reference implementation computed for a model, to be compared with.
//
// A golden file is a safetensors file. For j = 0, 1, ...:
//   ids{j} [T] i32          input tokens
//   logits{j} [T, vocab]    f32, of every position
//   topk{j}_full{i} [T, k]  i32, positions that the i-th layer with an indexer of its own selected, unsorted; entries
//                           beyond the token's own position are padding and ignored
//   greedy{j} [n]           i32, the greedy continuation
// and of one text: text_ids [T], text_logits_last4 [r, vocab] of the last r positions, text_argmax [T], text_nll [T -
// 1] (natural log, next token), text_topk_l{i}_last [k] selected by layer i for the last token. Any of them may be
// absent except the ids. A golden_generate.json holds a list of {prompt_ids, greedy_ids, expect_code}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace winnow {

struct GoldenSelection {
  bool by_layer = false;  // index counts layers; otherwise layers with an indexer of their own
  int64_t index = 0;
  int64_t rows = 0, width = 0;     // of the last `rows` positions
  std::vector<int32_t> positions;  // [rows, width]
};

struct GoldenInput {
  std::string name;          // "ids0", "text"
  std::vector<int32_t> ids;  // [T]
  int64_t vocab = 0;
  int64_t logit_rows = 0;       // of the last logit_rows positions
  std::vector<float> logits;    // [logit_rows, vocab]
  std::vector<int32_t> argmax;  // [T] or empty
  std::vector<float> nll;       // [T - 1] or empty
  std::vector<GoldenSelection> selections;
  std::vector<int32_t> greedy;
};

struct GoldenGeneration {
  std::string name;  // "generation 0"
  std::vector<int32_t> prompt, greedy;
  std::string code;  // that the answer must contain, or empty
};

struct Golden {
  std::vector<GoldenInput> inputs;
  std::vector<GoldenGeneration> generations;
};

// not_found when the file has no ids; corrupt_data naming the tensor whose type or shape does not fit.
[[nodiscard]] Result<Golden> read_golden(const std::string& path);
// Adds the generations of a golden_generate.json, given as text.
[[nodiscard]] Status read_generations(std::string_view json, Golden& golden);

}  // namespace winnow
