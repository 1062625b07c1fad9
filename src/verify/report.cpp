// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "verify/verify.hpp"

namespace winnow {
namespace {

std::string with_ties(int64_t equal, int64_t compared, int64_t ties) {
  return concat(equal, " of ", compared, " equal", ties > 0 ? concat(", ", ties, " ties") : "");
}

std::string describe(const VerifyCase& c) {
  std::string text = concat(c.failures.empty() ? "ok      " : "FAILED  ", c.name, ", ", c.tokens, " tokens\n");
  const auto line = [&](const char* what, const std::string& value) { text += concat("  ", what, value, "\n"); };
  if (c.logits.compared > 0) {
    line("logits     ", concat("worst error ", scientific(c.logits.worst), ", mean ", scientific(c.logits.mean),
                               " of the largest |logit| ", fixed(c.logits.largest, 3), " (worst at position ",
                               c.logits.worst_row, ")"));
  }
  if (c.argmax.compared > 0) line("argmax     ", with_ties(c.argmax.equal, c.argmax.compared, c.argmax.ties));
  for (const SelectionAgreement& s : c.selections) {
    std::string value = concat("layer ", s.layer, ": ", with_ties(s.equal, s.compared, s.ties));
    if (s.missed > 0) value += concat("; ", s.missed, " positions missed, clearest cut ", scientific(s.widest_wrong));
    line("selection  ", value);
  }
  if (!c.greedy.wanted.empty()) {
    const bool equal = c.greedy.first_difference < 0;
    line("greedy     ", equal ? concat(c.greedy.wanted.size(), " tokens equal")
                              : concat("equal up to token ", c.greedy.first_difference, " of ", c.greedy.wanted.size(),
                                       ", where the two best lie ", scientific(c.greedy.gap), " apart"));
  }
  if (c.golden_nll > 0) {
    line("mean NLL   ", concat(fixed(c.nll, 5), ", golden ", fixed(c.golden_nll, 5), " (",
                               fixed((c.nll / c.golden_nll - 1) * 100, 3), " %)"));
  }
  if (!c.code.empty()) {
    const bool found = c.answer.find(c.code) != std::string::npos;
    line("code       ", concat(c.code, found ? " is in the answer" : " is missing in the answer"));
  }
  for (const std::string& failure : c.failures) line("!  ", failure);
  return text;
}

nlohmann::json as_json(const VerifyCase& c) {
  nlohmann::json out = {{"name", c.name}, {"tokens", c.tokens}, {"failures", c.failures}};
  if (c.logits.compared > 0) {
    out["logits"] = {{"worst", c.logits.worst},
                     {"mean", c.logits.mean},
                     {"largest", c.logits.largest},
                     {"worst_position", c.logits.worst_row}};
  }
  if (c.argmax.compared > 0) {
    out["argmax"] = {{"compared", c.argmax.compared}, {"equal", c.argmax.equal}, {"ties", c.argmax.ties}};
  }
  for (const SelectionAgreement& s : c.selections) {
    out["selections"].push_back(
        {{"layer", s.layer}, {"compared", s.compared}, {"equal", s.equal}, {"ties", s.ties}, {"missed", s.missed}});
  }
  if (!c.greedy.wanted.empty()) {
    out["greedy"] = {{"tokens", c.greedy.wanted.size()}, {"first_difference", c.greedy.first_difference}};
  }
  if (c.golden_nll > 0) out["nll"] = {{"mean", c.nll}, {"golden", c.golden_nll}};
  if (!c.code.empty()) {
    out["code"] = {{"wanted", c.code}, {"found", c.answer.find(c.code) != std::string::npos}};
  }
  return out;
}

}  // namespace

std::string to_text(const VerifyReport& report) {
  std::string text;
  std::size_t passed = 0;
  for (const VerifyCase& c : report.cases) {
    text += describe(c);
    passed += c.failures.empty() ? 1 : 0;
  }
  if (!report.exact) text += "The weights are quantised: mean NLL and codes decide, the rest is for information.\n";
  return text += concat(report.passed() ? "agrees: " : "DOES NOT AGREE: ", passed, " of ", report.cases.size(),
                        " inputs as the golden says\n");
}

std::string to_json(const VerifyReport& report) {
  nlohmann::json out = {{"passed", report.passed()}, {"exact", report.exact}, {"cases", nlohmann::json::array()}};
  for (const VerifyCase& c : report.cases) out["cases"].push_back(as_json(c));
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace winnow
