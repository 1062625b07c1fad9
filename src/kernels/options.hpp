// SPDX-License-Identifier: Apache-2.0
// Options of the winnow-kernels program: --name value, --name=value and --flag, nothing else. The program may depend
// on the standard library alone, so this is the little that it needs of an option parser.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace winnow::kernels {

struct OptionHelp {
  const char* name;   // "heads"
  const char* value;  // "N", or "" for a flag
  const char* text;   // one line
};

class Options {
 public:
  // Every argument must be one of `known`; the message for another one names the closest.
  [[nodiscard]] static Result<Options> parse(std::span<const std::string> args, std::span<const OptionHelp> known);

  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const;
  // The number is checked to lie in [low, high]; a wrong one ends in failure(), so that callers read straight on.
  [[nodiscard]] int64_t number(const std::string& name, int64_t otherwise, int64_t low, int64_t high);
  [[nodiscard]] double real(const std::string& name, double otherwise, double low, double high);
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  void note_bad(const std::string& name, std::string_view wanted);

  std::map<std::string, std::string> values_;
  Status failure_;
};

[[nodiscard]] std::string options_help(std::span<const OptionHelp> known);

}  // namespace winnow::kernels
