// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tokenizer/utf8.hpp"

namespace winnow {
namespace {

// PCRE2's \s has U+180E besides Unicode's White_Space, and its \h means a blank where Oniguruma means a hex digit.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

constexpr std::size_t kMaxPatternBytes = 65536;
constexpr uint32_t kLeastMatchLimit = 1'000'000;
constexpr uint32_t kMatchStepsPerByte = 64;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024, kJitStackMost = 8 * 1024 * 1024;

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// What a class escape becomes: outside a class it brings its own brackets. \S inside a class stays as it is.
std::string class_escape(char letter, bool in_class) {
  const std::string_view set = (letter == 's' || letter == 'S') ? kSpaces : kHexDigits;
  const bool negated = letter == 'S' || letter == 'H';
  if (in_class) return negated ? std::string{'\\', letter} : std::string(set);
  return concat(negated ? "[^" : "[", set, "]");
}

Status refuse(std::string_view pattern, std::string_view what) {
  return error(StatusCode::unsupported, "pre-tokeniser pattern \"", pattern, "\" uses ", what,
               ", which this program has no counterpart for");
}

// PCRE2's own message and the place; the pattern is shown as translated, which is what the offset counts in.
Result<CodePtr> compile(const std::string& pattern) {
  CompileContextPtr context(pcre2_compile_context_create(nullptr));
  if (!context) return error(StatusCode::out_of_memory, "no memory for a pre-tokeniser pattern");
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  CodePtr compiled(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE, &code, &offset,
                                 context.get()));
  if (!compiled) {
    return error(StatusCode::unsupported, "pre-tokeniser pattern \"", pattern.substr(0, 400),
                 "\" does not compile in PCRE2: ", message_of(code), " at byte ", offset);
  }
  // Without JIT (a platform that forbids executable pages) the interpreter gives the same answers, only slower.
  (void)pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  return compiled;
}

}  // namespace

struct Splitter::Pattern {
  CodePtr code;
  std::string text;
};

namespace {

// One encode's scratch: match data, limits and a JIT stack that may grow to 8 MiB, off the thread's own stack.
class Matcher {
 public:
  static std::optional<Matcher> create(std::size_t text_bytes) {
    Matcher m;
    m.data_.reset(pcre2_match_data_create(1, nullptr));
    m.context_.reset(pcre2_match_context_create(nullptr));
    m.stack_.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
    if (!m.data_ || !m.context_) return std::nullopt;
    const std::size_t steps = std::min<std::size_t>(text_bytes, 10'000'000) * kMatchStepsPerByte;
    pcre2_set_match_limit(m.context_.get(), std::max<uint32_t>(kLeastMatchLimit, static_cast<uint32_t>(steps)));
    pcre2_set_heap_limit(m.context_.get(), kHeapLimitKib);
    if (m.stack_) pcre2_jit_stack_assign(m.context_.get(), nullptr, m.stack_.get());
    return m;
  }

  // The first match at or after `from`; false when there is none, an error when a limit was hit.
  Result<bool> find(const pcre2_code* code, std::string_view text, std::size_t from) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                               data_.get(), context_.get());
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) return error(StatusCode::unsupported, message_of(rc), " after byte ", from);
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    begin_ = bounds[0], end_ = bounds[1];
    // \K can put the start behind the end or before `from`: no tokenizer means that.
    if (begin_ > end_ || begin_ < from) return error(StatusCode::unsupported, "a match that begins after it ends");
    return true;
  }

  [[nodiscard]] std::size_t begin() const { return begin_; }
  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  MatchDataPtr data_;
  MatchContextPtr context_;
  JitStackPtr stack_;
  std::size_t begin_ = 0, end_ = 0;
};

// Matches and gaps of one piece. An empty match cuts nothing.
Status split_piece(const pcre2_code* code, Matcher& matcher, std::string_view piece,
                   std::vector<std::string_view>& out) {
  std::size_t done = 0, from = 0;
  while (from < piece.size()) {
    WINNOW_TRY_ASSIGN(const bool found, matcher.find(code, piece, from));
    if (!found) break;
    if (matcher.begin() == matcher.end()) {
      if (matcher.end() >= piece.size()) break;
      from = matcher.end() + utf8::decode_at(piece, matcher.end()).bytes;
      continue;
    }
    if (matcher.begin() > done) out.push_back(piece.substr(done, matcher.begin() - done));
    out.push_back(piece.substr(matcher.begin(), matcher.end() - matcher.begin()));
    done = from = matcher.end();
  }
  if (done < piece.size()) out.push_back(piece.substr(done));
  return {};
}

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' || next == 'S' || next == 'h' || next == 'H') {
        out += class_escape(next, in_class);
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') return refuse(pattern, "an empty character class");
      continue;
    }
    if (in_class && c == '[') {
      if (i + 1 >= pattern.size() || pattern[i + 1] != ':') return refuse(pattern, "a class inside a class");
      const std::size_t close = pattern.find(":]", i + 2);
      if (close == std::string_view::npos) return refuse(pattern, "an unclosed POSIX class");
      out += pattern.substr(i, close + 2 - i);
      i = close + 1;
      continue;
    }
    if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      return refuse(pattern, "an intersection of classes (&&)");
    }
    if (in_class && c == ']') in_class = false;
    out += c;
  }
  return out;
}

Result<Splitter> Splitter::create(const std::vector<std::string>& patterns) {
  Splitter splitter;
  for (const std::string& text : patterns) {
    WINNOW_TRY(utf8::check(text).in("pre-tokeniser pattern"));
    WINNOW_TRY_ASSIGN(const std::string translated, translate_pattern(text));
    WINNOW_TRY_ASSIGN(CodePtr code, compile(translated));
    auto pattern = std::make_shared<Pattern>();
    pattern->code = std::move(code);
    pattern->text = text;
    splitter.patterns_.push_back(std::move(pattern));
  }
  return splitter;
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (text.empty()) return {};
  auto matcher = Matcher::create(text.size());
  if (!matcher) return error(StatusCode::out_of_memory, "no memory to match a pre-tokeniser pattern");
  pieces.push_back(text);
  std::vector<std::string_view> next;
  for (const auto& pattern : patterns_) {
    next.clear();
    for (std::string_view piece : pieces) {
      WINNOW_TRY(split_piece(pattern->code.get(), *matcher, piece, next)
                     .in(concat("pre-tokeniser pattern \"", pattern->text.substr(0, 400), "\"")));
    }
    pieces.swap(next);
  }
  return {};
}

}  // namespace winnow
