// SPDX-License-Identifier: Apache-2.0
#include "formats/json.hpp"

#include <set>
#include <vector>

#include "formats/quoted.hpp"

namespace winnow {
namespace {

using nlohmann::json;

// Byte at which the nesting first exceeds max_depth, or -1. Run before the parser: its destructor and whoever walks
// the tree later recurse.
int64_t too_deep_at(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return static_cast<int64_t>(i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return -1;
}

// Finds the byte of the first mistake; the DOM parser without exceptions only says that there is one.
struct ErrorFinder : nlohmann::json_sax<json> {
  std::size_t byte = 0;
  bool too_large = false;  // a number such as 1e400, which is JSON but no double
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const json::exception& mistake) override {
    byte = position;
    too_large = dynamic_cast<const json::out_of_range*>(&mistake) != nullptr;
    return false;
  }
};

// Parser callback that remembers the keys of each open object down to a depth.
struct KeyWatch {
  int to_depth;
  std::vector<std::set<std::string>> open;  // [depth - 1]
  std::string repeated;
  bool found = false;

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth <= to_depth && !found) {
      const auto level = static_cast<std::size_t>(depth);
      if (open.size() < level) open.resize(level);
      if (!open[level - 1].insert(parsed.get_ref<const std::string&>()).second) {
        repeated = parsed.get_ref<const std::string&>();
        found = true;
      }
    }
    if (event == json::parse_event_t::object_end && static_cast<std::size_t>(depth) < open.size()) {
      open[static_cast<std::size_t>(depth)].clear();
    }
    return true;
  }
};

Status mistake(std::string_view text) {
  ErrorFinder finder;
  json::sax_parse(text, &finder);
  if (finder.too_large) {
    return error(StatusCode::corrupt_data, "the number that ends at byte ", finder.byte, " of ", text.size(),
                 " is too large for a double");
  }
  return error(StatusCode::corrupt_data, "not valid JSON at byte ", finder.byte, " of ", text.size(),
               finder.byte > text.size() ? "; the text ends too early" : "");
}

}  // namespace

Result<json> parse_json(std::string_view text, const JsonRules& rules) {
  if (const int64_t byte = too_deep_at(text, rules.max_depth); byte >= 0) {
    return error(StatusCode::corrupt_data, "JSON is nested deeper than ", rules.max_depth, " at byte ", byte);
  }
  if (rules.unique_keys_to_depth == 0) {
    json parsed = json::parse(text, nullptr, false);
    if (parsed.is_discarded()) return mistake(text);
    return parsed;
  }
  KeyWatch watch{.to_depth = rules.unique_keys_to_depth, .open = {}, .repeated = {}};
  json parsed = json::parse(
      text, [&watch](int depth, json::parse_event_t event, json& value) { return watch(depth, event, value); }, false);
  if (parsed.is_discarded()) return mistake(text);
  if (watch.found) return error(StatusCode::corrupt_data, "key ", quoted(watch.repeated), " appears twice");
  return parsed;
}

const json* member(const json& value, std::string_view key) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(key);
  return found == value.end() ? nullptr : &*found;
}

std::string string_member(const json& value, std::string_view key) {
  const json* found = member(value, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace winnow
