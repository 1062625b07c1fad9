// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.hpp"

#include <algorithm>

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/splitter.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocabulary.hpp"

namespace winnow {
namespace {

// Symbols of one pre-token are counted in int32.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// GLM files ask to stop where a turn ends even when their metadata names one eos only.
constexpr std::string_view kGlmMarker = "[gMASK]";
constexpr std::string_view kGlmStops[] = {"<|endoftext|>", "<|user|>", "<|observation|>"};

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Bpe bpe;
  Splitter splitter;
  AddedTokens added;

  // Text without added tokens.
  Status encode_text(std::string_view text, std::vector<int32_t>& out) const {
    std::vector<std::string_view> pieces;
    WINNOW_TRY(splitter.split(text, pieces));
    for (std::string_view piece : pieces) WINNOW_TRY(bpe.encode(piece, out));
    return {};
  }
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::build(Vocabulary vocabulary) {
  const std::size_t count = vocabulary.bytes.size();
  std::vector<std::string> ordinary(count);
  AddedTokens added;
  for (std::size_t id = 0; id < count; ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    if (kind == TokenKind::ordinary) ordinary[id] = vocabulary.bytes[id];
    if (kind == TokenKind::added || kind == TokenKind::control) {
      added.add(vocabulary.bytes[id], static_cast<int32_t>(id));
    }
  }
  WINNOW_TRY_ASSIGN(Bpe bpe, Bpe::create(ordinary, vocabulary.merges, vocabulary.ignore_merges));
  WINNOW_TRY_ASSIGN(Splitter splitter, Splitter::create(vocabulary.patterns));
  vocabulary.merges.clear();
  vocabulary.merges.shrink_to_fit();

  auto& stops = vocabulary.stop_tokens;
  if (added.id_of(kGlmMarker) >= 0) {
    for (std::string_view text : kGlmStops) stops.push_back(added.id_of(text));
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  std::erase_if(stops, [&](int32_t id) { return id < 0 || static_cast<std::size_t>(id) >= count; });

  return Tokenizer(
      std::make_unique<State>(State{std::move(vocabulary), std::move(bpe), std::move(splitter), std::move(added)}));
}

Result<Tokenizer> Tokenizer::from_gguf(const gguf::Metadata& metadata) {
  WINNOW_TRY_ASSIGN(Vocabulary vocabulary, read_gguf_vocabulary(metadata));
  return build(std::move(vocabulary));
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json,
                                       std::string_view generation_config_json,
                                       std::string_view tokenizer_config_json) {
  auto vocabulary = read_json_vocabulary(tokenizer_json, config_json, generation_config_json, tokenizer_config_json);
  if (!vocabulary.ok()) return std::move(vocabulary).status().in("tokenizer.json");
  return build(std::move(vocabulary).value());
}

Result<Tokenizer> Tokenizer::load(const Checkpoint& checkpoint) {
  if (checkpoint.format == ContainerFormat::gguf) {
    auto tokenizer = from_gguf(checkpoint.metadata);
    if (!tokenizer.ok()) return std::move(tokenizer).status().in(checkpoint.path);
    return tokenizer;
  }
  if (checkpoint.tokenizer_json.empty()) {
    return error(StatusCode::not_found, checkpoint.path,
                 ": no tokenizer.json beside the weights; download it from where the checkpoint came from");
  }
  auto tokenizer = from_json(checkpoint.tokenizer_json, checkpoint.config_json, checkpoint.generation_config_json,
                             checkpoint.tokenizer_config_json);
  if (!tokenizer.ok()) return std::move(tokenizer).status().in(checkpoint.path);
  return tokenizer;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, Special special) const {
  if (text.size() > kMaxTextBytes) {
    return error(StatusCode::invalid_argument, "the text has ", text.size(), " bytes, at most ", kMaxTextBytes,
                 " can be encoded at once");
  }
  WINNOW_TRY(utf8::check(text));
  std::vector<int32_t> ids;
  std::size_t done = 0;
  while (special == Special::parse && done < text.size()) {
    const AddedTokens::Match match = state_->added.find_from(text, done);
    if (match.bytes == 0) break;
    WINNOW_TRY(state_->encode_text(text.substr(done, match.begin - done), ids));
    ids.push_back(match.id);
    done = match.begin + match.bytes;
  }
  WINNOW_TRY(state_->encode_text(text.substr(done), ids));
  return ids;
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return state_->vocabulary.bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += bytes_of(id);
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text += stream.finish();
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(state_->vocabulary.bytes.size()); }

int32_t Tokenizer::find(std::string_view special_text) const { return state_->added.id_of(special_text); }

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->vocabulary.kinds[static_cast<std::size_t>(id)] == TokenKind::control;
}

const std::vector<int32_t>& Tokenizer::stop_tokens() const { return state_->vocabulary.stop_tokens; }

int32_t Tokenizer::bos() const { return state_->vocabulary.bos; }

}  // namespace winnow
