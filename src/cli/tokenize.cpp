// SPDX-License-Identifier: Apache-2.0
// winnow tokenize: text to token ids and back, with the tokenizer of a model.
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/document.hpp"
#include "cli/exit_status.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "tokenizer/prompt.hpp"
#include "tokenizer/utf8.hpp"

namespace winnow::cli {
namespace {

struct TokenizeArguments {
  std::string model, text, file, decode;
  bool shaped = false, special = false, ids_only = false, json = false;
};

Result<std::vector<int32_t>> parse_ids(std::string_view list) {
  std::vector<int32_t> ids;
  std::size_t at = 0;
  const auto separator = [](char c) { return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '[' || c == ']'; };
  for (;;) {
    while (at < list.size() && separator(list[at])) ++at;
    if (at == list.size()) return ids;
    int32_t id = 0;
    const auto [end, code] = std::from_chars(list.data() + at, list.data() + list.size(), id);
    if (code != std::errc() || (end != list.data() + list.size() && !separator(*end))) {
      return error(StatusCode::invalid_argument, "--decode: \"", list.substr(at, 20), "\" is no token id");
    }
    ids.push_back(id);
    at = static_cast<std::size_t>(end - list.data());
  }
}

Result<std::vector<int32_t>> encode(const TokenizeArguments& arguments, const Checkpoint& checkpoint,
                                    const Tokenizer& tokenizer) {
  WINNOW_TRY_ASSIGN(const std::string text, document_and_prompt(arguments.file, arguments.text));
  if (arguments.shaped) {
    return encode_prompt(tokenizer, detect_prompt_shape(checkpoint, tokenizer), {{Turn::Role::user, text}});
  }
  return tokenizer.encode(text, arguments.special ? Tokenizer::Special::parse : Tokenizer::Special::literal);
}

// Bytes of a token as a C string literal would have them; a JSON string for whole characters.
std::string shown(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const utf8::Decoded c = utf8::decode_at(bytes, at);
    const auto byte = static_cast<uint8_t>(bytes[at]);
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', static_cast<char>(byte)};
    } else if (!c.ok || byte < 32 || byte == 127) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      ++at;
      continue;
    } else {
      out += bytes.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return out + "\"";
}

std::string as_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool ids_only) {
  std::string out;
  for (const int32_t id : ids) {
    if (ids_only) {
      out += concat(out.empty() ? "" : " ", id);
    } else {
      out += concat(id, "\t", shown(tokenizer.bytes_of(id)), tokenizer.is_special(id) ? "\tspecial" : "", "\n");
    }
  }
  return ids_only ? out + "\n" : out;
}

std::string as_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  nlohmann::json tokens = nlohmann::json::array();
  for (const int32_t id : ids) {
    tokens.push_back({{"id", id}, {"text", tokenizer.bytes_of(id)}, {"special", tokenizer.is_special(id)}});
  }
  const nlohmann::json out = {{"count", ids.size()}, {"ids", ids}, {"tokens", tokens}, {"text", tokenizer.decode(ids)}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<std::string> tokenize(const TokenizeArguments& arguments) {
  WINNOW_TRY_ASSIGN(const Checkpoint checkpoint, open_checkpoint(arguments.model));
  WINNOW_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(checkpoint));
  if (!arguments.decode.empty()) {
    WINNOW_TRY_ASSIGN(const std::vector<int32_t> ids, parse_ids(arguments.decode));
    for (const int32_t id : ids) {
      if (id >= 0 && id < tokenizer.vocab_size()) continue;
      return error(StatusCode::invalid_argument, "--decode: token ", id, " is outside the vocabulary of ",
                   tokenizer.vocab_size());
    }
    return arguments.json ? as_json(tokenizer, ids) : tokenizer.decode(ids);
  }
  WINNOW_TRY_ASSIGN(const std::vector<int32_t> ids, encode(arguments, checkpoint, tokenizer));
  print_error(concat(ids.size(), " tokens\n"));
  return arguments.json ? as_json(tokenizer, ids) : as_text(tokenizer, ids, arguments.ids_only);
}

int tokenize_command(const TokenizeArguments& arguments) {
  const Result<std::string> text = tokenize(arguments);
  if (!text.ok()) return fail("tokenize", text.status());
  return finish(*text, kOk);
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("tokenize", "Text to token ids and back");
  const auto arguments = std::make_shared<TokenizeArguments>();
  add_model(*sub, arguments->model);
  sub->add_option("TEXT", arguments->text, "Text to encode")->type_name("");
  sub->add_option("--file", arguments->file, "Encode this file (in front of TEXT)")
      ->type_name("DOC")
      ->check(text_given());
  CLI::Option* decode =
      sub->add_option("--decode", arguments->decode, "Decode these ids instead")->type_name("IDS")->check(text_given());
  sub->add_flag("--special", arguments->special, "Let special tokens in the text be tokens")->excludes(decode);
  sub->add_flag("--shape", arguments->shaped, "Wrap the text in the model's prompt shape")->excludes(decode);
  sub->add_flag("--ids", arguments->ids_only, "Print the ids alone, on one line")->excludes(decode);
  add_json(*sub, arguments->json);
  sub->footer(
      "\nExamples:\n"
      "  winnow tokenize model.gguf \"Hello, world\"\n"
      "  winnow tokenize model.gguf --file report.txt --ids | wc -w\n"
      "  winnow tokenize model.gguf \"Hello\" --shape\n"
      "  winnow tokenize model.gguf --decode \"39, 1465, 300\"\n");
  sub->callback([arguments, &action] { action = [arguments] { return tokenize_command(*arguments); }; });
}

}  // namespace winnow::cli
