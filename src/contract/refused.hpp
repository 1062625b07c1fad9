// SPDX-License-Identifier: Apache-2.0
// A refusal in words: what a launch returns when its own predicate says no.
#pragma once

#include <string>
#include <string_view>

#include "contract/verdict.hpp"
#include "core/status.hpp"

namespace winnow {

// "q_heads: wants 1 to 128, has 200; rows: wants bf16, has f32"; empty when admitted.
[[nodiscard]] inline std::string reasons_of(const Verdict& verdict) {
  std::string text;
  for (const Refusal& refusal : verdict.refusals) {
    text += concat(text.empty() ? "" : "; ", refusal.what, ": wants ", refusal.wanted, ", has ", refusal.found);
  }
  return text;
}

// ok when admitted, otherwise `unsupported`: "cpu.simd: " and every reason.
[[nodiscard]] inline Status refused(std::string_view backend, const Verdict& verdict) {
  if (verdict.admitted()) return Status();
  return error(StatusCode::unsupported, backend, ": ", reasons_of(verdict));
}

}  // namespace winnow
