// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt.hpp"

#include <initializer_list>

namespace winnow {
namespace {

constexpr const char* kDeepSeekBos = "<\uff5cbegin\u2581of\u2581sentence\uff5c>";
constexpr const char* kDeepSeekEos = "<\uff5cend\u2581of\u2581sentence\uff5c>";
constexpr const char* kDeepSeekUser = "<\uff5cUser\uff5c>";
constexpr const char* kDeepSeekAssistant = "<\uff5cAssistant\uff5c>";

bool has_all(const Tokenizer& tokenizer, std::initializer_list<std::string_view> texts) {
  for (std::string_view text : texts) {
    if (tokenizer.find(text) < 0) return false;
  }
  return true;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Markers of one shape. A prefix of markers, then per turn its role's markers and `before_text`, the text, its closing
// marker; at the end the generation prompt.
struct Shape {
  std::vector<const char*> prefix, system, user, assistant, assistant_end, generation;
  const char* before_text;  // ordinary text in front of each turn's own
};

Shape shape_of(PromptShape shape) {
  switch (shape) {
    case PromptShape::glm5:
      return {{"[gMASK]", "<sop>"},
              {"<|system|>"},
              {"<|user|>"},
              {"<|assistant|>", "<think>", "</think>"},
              {},
              {"<|assistant|>", "<think>", "</think>"},
              ""};
    case PromptShape::glm47:
      return {{"[gMASK]", "<sop>"},
              {"<|system|>"},
              {"<|user|>"},
              {"<|assistant|>", "</think>"},
              {},
              {"<|assistant|>", "</think>"},
              ""};
    case PromptShape::deepseek32:
      return {{kDeepSeekBos},
              {},
              {kDeepSeekUser},
              {kDeepSeekAssistant, "</think>"},
              {kDeepSeekEos},
              {kDeepSeekAssistant, "</think>"},
              ""};
    case PromptShape::winnow_tiny:
      return {{"[gMASK]", "<sop>"}, {"<|system|>"}, {"<|user|>"}, {"<|assistant|>"}, {}, {"<|assistant|>"}, "\n"};
    case PromptShape::raw: break;
  }
  return {};
}

class PromptWriter {
 public:
  PromptWriter(const Tokenizer& tokenizer, PromptShape shape) : tokenizer_(tokenizer), name_(name_of(shape)) {}

  Status markers(const std::vector<const char*>& texts) {
    for (const char* text : texts) {
      const int32_t id = tokenizer_.find(text);
      if (id < 0) {
        return error(StatusCode::not_found, "prompt shape ", name_, " needs the token ", text,
                     ", which this vocabulary lacks; --raw sends the text without a shape");
      }
      ids_.push_back(id);
    }
    return {};
  }

  Status text(const std::string& text, Tokenizer::Special special) {
    WINNOW_TRY_ASSIGN(const std::vector<int32_t> ids, tokenizer_.encode(text, special));
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return {};
  }

  std::vector<int32_t> take() { return std::move(ids_); }

 private:
  const Tokenizer& tokenizer_;
  const char* name_;
  std::vector<int32_t> ids_;
};

Result<std::vector<int32_t>> encode_raw(const Tokenizer& tokenizer, const std::vector<Turn>& turns) {
  std::string text;
  for (const Turn& turn : turns) text += turn.text;
  WINNOW_TRY_ASSIGN(std::vector<int32_t> ids, tokenizer.encode(text, Tokenizer::Special::parse));
  const int32_t bos = tokenizer.bos();
  if (bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace

const char* name_of(PromptShape shape) {
  switch (shape) {
    case PromptShape::raw: return "raw";
    case PromptShape::glm5: return "glm5";
    case PromptShape::deepseek32: return "deepseek32";
    case PromptShape::winnow_tiny: return "winnow-tiny";
    case PromptShape::glm47: return "glm47";
  }
  return "unknown";
}

PromptShape detect_prompt_shape(std::string_view chat_template, const Tokenizer& tokenizer) {
  if (has_all(tokenizer, {kDeepSeekBos, kDeepSeekUser, kDeepSeekAssistant, "</think>"})) return PromptShape::deepseek32;
  if (!has_all(tokenizer, {"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"})) return PromptShape::raw;
  const bool thinks = has_all(tokenizer, {"<think>", "</think>"});
  if (!thinks) return PromptShape::winnow_tiny;
  // GLM-4.7 closes thinking without opening it; its template never writes the empty pair at the generation prompt.
  if (contains(chat_template, "</think>") && !contains(chat_template, "<think></think>")) return PromptShape::glm47;
  return PromptShape::glm5;
}

PromptShape detect_prompt_shape(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  return detect_prompt_shape(checkpoint.chat_template, tokenizer);
}

Result<std::vector<int32_t>> encode_prompt(const Tokenizer& tokenizer, PromptShape shape,
                                           const std::vector<Turn>& turns) {
  if (turns.empty()) return error(StatusCode::invalid_argument, "a prompt needs at least one turn");
  if (shape == PromptShape::raw) return encode_raw(tokenizer, turns);
  const Shape parts = shape_of(shape);
  PromptWriter writer(tokenizer, shape);
  WINNOW_TRY(writer.markers(parts.prefix));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    const bool answer = turn.role == Turn::Role::assistant;
    WINNOW_TRY(writer.markers(answer ? parts.assistant : turn.role == Turn::Role::user ? parts.user : parts.system));
    WINNOW_TRY(writer.text(parts.before_text + turn.text, Tokenizer::Special::literal).in(concat("turn ", i + 1)));
    if (answer) WINNOW_TRY(writer.markers(parts.assistant_end));
  }
  WINNOW_TRY(writer.markers(parts.generation));
  return writer.take();
}

}  // namespace winnow
