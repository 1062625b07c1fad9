// SPDX-License-Identifier: Apache-2.0
#include "conformance/case_spec.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace winnow::conformance {
namespace {

struct Key {
  const char* name;
  const char* standard;  // value when the line does not give one
  const char* words;     // allowed words between blanks; # stands for any integer
};

constexpr const char* kRows = " f32 bf16 v32_fp8 ";
constexpr const char* kYesNo = " yes no ";

constexpr Key kMla[] = {
    {"tokens", "2", " # "},
    {"heads", "4", " # "},
    {"topk", "64", " # "},
    {"geometry", "512+64", " 512+64 512+0 96+32 128+64 "},
    {"d_v", "0", " # "},  // 0: d_nope
    {"page_size", "64", " # "},
    {"rows", "bf16", kRows},
    {"act", "bf16", " f32 bf16 "},
    {"slots", "0", " # "},  // of the pool; 0: three times topk
    {"list", "valid", " valid empty hole_head hole_middle hole_tail last_only wild duplicates same mixed ascending "},
    {"len", "none", " none mixed # "},
    {"scores", "random", " random peaky constant huge increasing zero "},
    {"values", "normal", " normal power_of_two edges zero wide "},
    {"q", "random", " random nan_empty nan_head inf_head "},
    {"sink", "none", " none neg_inf pos_inf zero per_head "},
    {"strides", "dense", " dense padded heads_outside "},
    {"lse", "yes", kYesNo},
    {"far", "no", kYesNo},  // slots start where slot * row bytes has left int32
};
constexpr Key kSelect[] = {
    {"tokens", "2", " # "},
    {"heads", "8", " # "},
    {"dim", "128", " # "},
    {"topk", "64", " # "},
    {"page_size", "64", " # "},
    {"keys", "bf16", " f32 bf16 fp8 "},
    {"q_type", "bf16", " f32 bf16 e4m3 "},
    {"len", "200", " topk-1 topk topk+1 negative prefill mixed # "},
    {"max_len", "0", " # "},  // 0: the longest
    {"start", "0", " ragged # "},
    {"sequences", "0", " # "},  // 0: one per token; 1 makes all tokens share one
    {"scores", "random",
     " random equal two zeros nan nan_weight infinite neg_infinite ascending descending border sawtooth negative "},
    {"output", "slots", " slots positions "},
    {"pages", "permuted", " permuted damaged "},
    {"strides", "dense", " dense padded "},
};
constexpr Key kWrite[] = {
    {"tokens", "5", " # "},
    {"geometry", "512+64", " 512+64 512+0 96+32 128+64 "},
    {"index_dim", "128", " # "},
    {"page_size", "64", " # "},
    {"rows", "bf16", kRows},
    {"keys", "bf16", " f32 bf16 fp8 "},
    {"mode", "power_of_two", " plain power_of_two "},
    {"act", "bf16", " f32 bf16 "},
    {"values", "normal", " normal zero tiny huge nonfinite ties "},
    {"slots", "scattered", " scattered wild none "},
    {"strides", "dense", " dense padded "},
};
constexpr Key kGather[] = {
    {"slots", "100", " # "},
    {"geometry", "512+64", " 512+64 512+0 96+32 128+64 "},
    {"page_size", "64", " # "},
    {"rows", "bf16", kRows},
    {"list", "valid", " valid wild duplicates "},
    {"values", "normal", " normal power_of_two edges zero wide "},
    {"strides", "dense", " dense padded "},
};
constexpr Key kMerge[] = {
    {"parts", "2", " # "},
    {"tokens", "3", " # "},
    {"heads", "8", " # "},
    {"d_v", "512", " # "},
    {"out", "f32", " f32 bf16 "},
    {"parts_empty", "none", " none some all first last "},
    {"lse_spread", "5", " # "},  // standard deviation of the parts' lse
    {"sink", "none", " none neg_inf pos_inf zero per_head "},
    {"strides", "dense", " dense padded heads_outside "},
};

struct Kind {
  const char* name;
  const Key* first;
  const Key* last;
};
const Kind kKinds[] = {{"mla", std::begin(kMla), std::end(kMla)},
                       {"select", std::begin(kSelect), std::end(kSelect)},
                       {"write", std::begin(kWrite), std::end(kWrite)},
                       {"gather", std::begin(kGather), std::end(kGather)},
                       {"merge", std::begin(kMerge), std::end(kMerge)}};

bool is_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size();
}

bool allowed(const Key& key, const std::string& value) {
  const std::string_view words = key.words;
  if (words.find('#') != std::string_view::npos && is_integer(value)) return true;
  return words.find(" " + value + " ") != std::string_view::npos;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

using Choices = std::vector<std::pair<std::string, std::vector<std::string>>>;

Result<CaseSpec> make_case(const Kind& kind, const Choices& choices, const std::vector<std::size_t>& picked,
                           const std::string& where) {
  CaseSpec spec;
  spec.kind = kind.name;
  spec.where = where;
  for (const Key* key = kind.first; key != kind.last; ++key) spec.values[key->name] = key->standard;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string& name = choices[i].first;
    const std::string& value = choices[i].second[picked[i]];
    const Key* key = std::find_if(kind.first, kind.last, [&](const Key& k) { return name == k.name; });
    if (key == kind.last) return error(StatusCode::corrupt_data, where, ": ", kind.name, " has no key ", name);
    if (!allowed(*key, value)) {
      return error(StatusCode::corrupt_data, where, ": ", name, " is ", value, ", wants one of:", key->words);
    }
    spec.values[name] = value;
    spec.given += concat(spec.given.empty() ? "" : " ", name, "=", value);
  }
  return spec;
}

bool next_combination(const Choices& choices, std::vector<std::size_t>& picked) {
  for (std::size_t i = choices.size(); i-- > 0;) {
    if (++picked[i] < choices[i].second.size()) return true;
    picked[i] = 0;
  }
  return false;
}

Status parse_line(std::string_view line, const std::string& where, std::vector<CaseSpec>& cases) {
  std::istringstream words{std::string(line.substr(0, line.find('#')))};
  std::string name;
  if (!(words >> name)) return Status();
  const Kind* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return name == k.name; });
  if (kind == std::end(kKinds)) return error(StatusCode::corrupt_data, where, ": no kind of case is called ", name);
  Choices choices;
  bool slow = false;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (word == "slow") {
      slow = true;
    } else if (equals == std::string::npos || equals + 1 == word.size()) {
      return error(StatusCode::corrupt_data, where, ": \"", word, "\" is no key=value");
    } else {
      choices.emplace_back(word.substr(0, equals), split(word.substr(equals + 1), ','));
    }
  }
  std::vector<std::size_t> picked(choices.size(), 0);
  do {
    WINNOW_TRY_ASSIGN(CaseSpec spec, make_case(*kind, choices, picked, where));
    spec.slow = slow;
    cases.push_back(std::move(spec));
  } while (next_combination(choices, picked));
  return Status();
}

}  // namespace

const std::string& CaseSpec::word(std::string_view key) const {
  const auto found = values.find(key);
  WINNOW_CHECK(found != values.end(), kind, " has no key ", key);
  return found->second;
}

int64_t CaseSpec::integer(std::string_view key) const {
  const std::string& text = word(key);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<std::vector<CaseSpec>> parse_cases(std::string_view text, const std::string& file) {
  std::vector<CaseSpec> cases;
  int line = 0;
  for (const std::string& content : split(text, '\n')) {
    WINNOW_TRY(parse_line(content, concat(file, ":", ++line), cases));
  }
  return cases;
}

Result<std::vector<CaseSpec>> load_cases(const std::string& folder) {
  std::error_code failure;
  std::vector<std::string> files;
  for (std::filesystem::recursive_directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->path().extension() == ".case") files.push_back(at->path().string());
  }
  if (failure || files.empty()) {
    return error(StatusCode::io_error, folder, ": no *.case file found",
                 failure ? concat(" (", failure.message(), ")") : "", "; run from the source tree or give the folder");
  }
  std::sort(files.begin(), files.end());
  std::vector<CaseSpec> cases;
  for (const std::string& file : files) {
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    WINNOW_TRY_ASSIGN(std::vector<CaseSpec> more, parse_cases(text.str(), file));
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace winnow::conformance
