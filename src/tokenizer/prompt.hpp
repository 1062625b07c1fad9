// SPDX-License-Identifier: Apache-2.0
// Prompt shapes: how turns of a conversation become one token sequence. Thinking is off in all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"
#include "tokenizer/tokenizer.hpp"

namespace winnow {

struct Turn {
  enum class Role { system, user, assistant } role = Role::user;
  std::string text;
};

enum class PromptShape {
  raw,          // the text alone, special tokens parsed; a bos in front when the tokenizer adds one
  glm5,         // [gMASK]<sop><|system|>..<|user|>..<|assistant|><think></think>
  deepseek32,   // <bos>system<|User|>..<|Assistant|></think>
  winnow_tiny,  // [gMASK]<sop><|user|>\n..<|assistant|>; the answer begins with a newline
  glm47,        // as glm5, with </think> alone: GLM-4.7 and GLM-4.7-Flash
};
[[nodiscard]] const char* name_of(PromptShape shape);

// The shape that a checkpoint asks for: recognised from its chat template and special tokens. When nothing is
// recognised: raw (the caller says so on stderr).
[[nodiscard]] PromptShape detect_prompt_shape(const Checkpoint& checkpoint, const Tokenizer& tokenizer);
[[nodiscard]] PromptShape detect_prompt_shape(std::string_view chat_template, const Tokenizer& tokenizer);

// Tokens up to and including the generation prompt. The text of turns never becomes special tokens, except in raw.
// invalid_argument: no turn, or text that is not UTF-8 (the turn is named). not_found: the vocabulary lacks a marker of
// the shape (named).
[[nodiscard]] Result<std::vector<int32_t>> encode_prompt(const Tokenizer& tokenizer, PromptShape shape,
                                                         const std::vector<Turn>& turns);

}  // namespace winnow
