// SPDX-License-Identifier: Apache-2.0
#include "cli/document.hpp"

#include "formats/text_file.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow::cli {
namespace {
// Over ten million tokens: beyond every context, and a wrong path (a model file) must not fill the memory.
constexpr int64_t kMaxDocumentBytes = int64_t{64} << 20;
}  // namespace

Result<std::string> document_and_prompt(const std::string& path, const std::string& prompt) {
  WINNOW_TRY(utf8::check(prompt).in("prompt"));
  if (path.empty()) {
    if (prompt.empty()) return error(StatusCode::invalid_argument, "the prompt is empty; give text to answer");
    return prompt;
  }
  WINNOW_TRY_ASSIGN(std::string text, read_text_file(path, kMaxDocumentBytes));
  WINNOW_TRY(utf8::check(text).in(path));
  // An answer to the prompt alone would look like one about the document.
  if (text.empty()) {
    return error(StatusCode::invalid_argument, path, ": the file is empty",
                 prompt.empty() ? ", and so is the prompt" : "; fill it, or leave --file out");
  }
  if (prompt.empty()) return text;
  return text + "\n" + prompt;
}

}  // namespace winnow::cli
