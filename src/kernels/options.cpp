// SPDX-License-Identifier: Apache-2.0
#include "kernels/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace winnow::kernels {
namespace {

const OptionHelp* find(std::span<const OptionHelp> known, std::string_view name) {
  const auto it = std::find_if(known.begin(), known.end(), [&](const OptionHelp& o) { return name == o.name; });
  return it == known.end() ? nullptr : &*it;
}

std::string names_of(std::span<const OptionHelp> known) {
  std::string names;
  for (const OptionHelp& option : known) names += concat(names.empty() ? "" : " ", "--", option.name);
  return names;
}

}  // namespace

Result<Options> Options::parse(std::span<const std::string> args, std::span<const OptionHelp> known) {
  Options options;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg.size() < 3 || !arg.starts_with("--")) {
      return error(StatusCode::invalid_argument, "'", arg, "' is not an option; options are ", names_of(known));
    }
    const std::size_t equals = arg.find('=');
    const std::string name = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    const OptionHelp* option = find(known, name);
    if (option == nullptr) {
      return error(StatusCode::invalid_argument, "there is no option --", name, "; options are ", names_of(known));
    }
    const bool flag = option->value[0] == '\0';
    if (flag && equals != std::string::npos) {
      return error(StatusCode::invalid_argument, "--", name, " takes no value");
    }
    if (flag) {
      options.values_[name] = std::string(1, '1');
    } else if (equals != std::string::npos) {
      options.values_[name] = arg.substr(equals + 1);
    } else if (i + 1 < args.size()) {
      options.values_[name] = args[++i];
    } else {
      return error(StatusCode::invalid_argument, "--", name, " wants a value: ", option->value);
    }
  }
  return options;
}

std::string Options::text(const std::string& name, const std::string& otherwise) const {
  const auto it = values_.find(name);
  return it == values_.end() ? otherwise : it->second;
}

void Options::note_bad(const std::string& name, std::string_view wanted) {
  if (failure_.ok()) {
    failure_ = error(StatusCode::invalid_argument, "--", name, " wants ", wanted, ", found '", values_[name], "'");
  }
}

int64_t Options::number(const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  const auto it = values_.find(name);
  if (it == values_.end()) return otherwise;
  int64_t value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto parsed = std::from_chars(it->second.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high) return value;
  note_bad(name, concat("a whole number from ", low, " to ", high));
  return otherwise;
}

double Options::real(const std::string& name, double otherwise, double low, double high) {
  const auto it = values_.find(name);
  if (it == values_.end()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(it->second.c_str(), &end);
  if (end == it->second.c_str() + it->second.size() && value >= low && value <= high) return value;
  note_bad(name, concat("a number from ", low, " to ", high));
  return otherwise;
}

std::string options_help(std::span<const OptionHelp> known) {
  std::string text;
  for (const OptionHelp& option : known) {
    std::string left = concat("  --", option.name, option.value[0] ? " " : "", option.value);
    left.resize(std::max<std::size_t>(left.size() + 2, 26), ' ');
    text += concat(left, option.text, "\n");
  }
  return text;
}

}  // namespace winnow::kernels
