// SPDX-License-Identifier: Apache-2.0
// Text from values, for messages: concat("tensor ", name, " has ", n, " bytes").
// core, contract and select depend on the standard library alone, and C++20 in g++ 12 has no std::format.
#pragma once

#include <sstream>
#include <string>

namespace winnow {

template <class... Args>
[[nodiscard]] std::string concat(const Args&... args) {
  std::ostringstream out;
  out.precision(9);  // a float printed with 9 digits reads back as the same float
  (out << ... << args);
  return std::move(out).str();
}

}  // namespace winnow
