// SPDX-License-Identifier: Apache-2.0
// A path in words: every row with its verdict, and, when there is no path, the proof and what would change it.
#include <algorithm>

#include "contract/refused.hpp"
#include "core/text.hpp"
#include "select/select.hpp"

namespace winnow {
namespace {

constexpr int32_t kShortestContext = 64;  // tokens; a shorter one helps nobody, so it is not offered

// Binary units, as shared memory is sold: "77 KB", "97.9 KB", "256 MB".
std::string kilobytes(int64_t bytes) {
  const bool large = bytes >= int64_t{10} << 20;
  std::string number = fixed(static_cast<double>(bytes) / (large ? 0x1p20 : 0x1p10), 1);
  if (number.size() > 2 && number.compare(number.size() - 2, 2, ".0") == 0) number.resize(number.size() - 2);
  return number + (large ? " MB" : " KB");
}

std::string describe(const AttentionNeeds& needs) {
  std::string text = concat("q_heads ", needs.q_heads, ", rows ", name_of(needs.rows), " ", needs.d_nope, " + ",
                            needs.d_rope, ", topk ", needs.topk);
  if (needs.index_heads > 0) {
    text += concat(", index ", needs.index_heads, " x ", needs.index_dim, " keys ", name_of(needs.keys));
  }
  return text + concat(", activations ", name_of(needs.activations), ", pages of ", needs.page_size);
}

std::string state_of(const PathStep& step, const Considered& candidate) {
  if (candidate.backend == step.chosen) return "chosen";
  return candidate.verdict.admitted() ? "admitted" : "refused";
}

std::string reason_of(const AttentionPath& path, const PathStep& step, const Considered& candidate) {
  if (!candidate.verdict.admitted()) return reasons_of(candidate.verdict);
  if (candidate.backend != step.chosen) {
    const bool other_forced = !path.forced.empty() && path.forced != candidate.backend->name;
    return other_forced ? concat("set aside: ", path.forced, " is forced") : "";
  }
  const std::string facts = describe(step.launch);
  const bool forced = path.forced == candidate.backend->name;
  const char* absent = candidate.backend->built ? "" : "; not in this build";
  return concat(forced ? "forced" : "first admitted", facts.empty() ? "" : "; ", facts, absent);
}

std::string heading(const AttentionPath& path, const PathStep& step) {
  const AttentionNeeds& needs = path.needs;
  if (step.operation == "decode attention") return concat(step.operation, ", ", plural(needs.decode_tokens, "token"));
  if (step.operation == "prefill attention") return concat(step.operation, ", ", plural(needs.prefill_tokens, "token"));
  return step.operation;
}

// The same question with one thing changed, to the same rows.
bool works(const AttentionPath& path, const AttentionNeeds& needs, std::string_view forced, bool ignore_absence) {
  const Result<AttentionPath> other = choose_path_among(path.rows, needs, path.device, forced, ignore_absence);
  return other.ok() && other.value().admitted();
}
bool works(const AttentionPath& path, const AttentionNeeds& needs) {
  return works(path, needs, path.forced, path.ignore_absence);
}

void try_formats(const AttentionPath& path, std::vector<std::string>& changes) {
  for (RowFormat rows : {RowFormat::bf16, RowFormat::v32_fp8, RowFormat::f32}) {
    AttentionNeeds needs = path.needs;
    needs.rows = rows;
    if (rows != path.needs.rows && works(path, needs)) {
      changes.push_back(concat("cache rows as ", name_of(rows), " (now ", name_of(path.needs.rows), ")"));
    }
  }
  if (path.needs.index_heads == 0) return;
  for (KeyFormat keys : {KeyFormat::bf16, KeyFormat::fp8, KeyFormat::f32}) {
    AttentionNeeds needs = path.needs;
    needs.keys = keys;
    if (keys != path.needs.keys && works(path, needs)) {
      changes.push_back(concat("index keys as ", name_of(keys), " (now ", name_of(path.needs.keys), ")"));
    }
  }
}

void try_sizes(const AttentionPath& path, std::vector<std::string>& changes) {
  AttentionNeeds needs = path.needs;
  needs.page_size = AttentionNeeds().page_size;
  if (path.needs.page_size != needs.page_size && works(path, needs)) {
    changes.push_back(concat("pages of ", needs.page_size, " slots (now ", path.needs.page_size, ")"));
  }
  needs = path.needs;
  if (needs.index_heads > 0) return;  // topk is the model's own then
  for (int32_t topk = needs.topk / 2; topk >= kShortestContext; topk /= 2) {
    needs.topk = topk;
    needs.context = topk;
    if (!works(path, needs)) continue;
    changes.push_back(concat("a context of ", topk, " tokens (now ", path.needs.topk, ", all of them read)"));
    break;
  }
}

void try_choice(const AttentionPath& path, std::vector<std::string>& changes) {
  if (path.forced.empty()) return;
  if (works(path, path.needs, {}, path.ignore_absence)) {
    changes.push_back(concat("a free choice of backend (", path.forced, " is forced)"));
  }
  for (const Backend* row : path.rows) {
    if (path.forced == row->name || row->kind != path.device.kind) continue;
    if (!works(path, path.needs, row->name, path.ignore_absence)) continue;
    changes.push_back(concat("--attention ", row->name));
  }
}

void try_build(const AttentionPath& path, std::vector<std::string>& changes) {
  if (path.ignore_absence || !works(path, path.needs, path.forced, true)) return;
  changes.push_back("a build that has the backends named as not built");
}

void try_device(const AttentionPath& path, std::vector<std::string>& changes) {
  if (path.device.kind == DeviceKind::cpu) return;
  DeviceInfo cpu;
  cpu.units = 1;
  AttentionNeeds needs = path.needs;
  needs.activations = DType::f32;
  const Result<AttentionPath> other = choose_path(needs, cpu);
  if (other.ok() && other.value().admitted()) changes.push_back("a CPU as the device (--device this)");
}

// Why a step has no choice: the rows of this kind with their reasons, rows for other devices together.
std::vector<std::string> reasons(const AttentionPath& path, const PathStep& step) {
  std::vector<std::string> lines, elsewhere;
  const bool forced_offers = std::any_of(step.considered.begin(), step.considered.end(),
                                         [&](const Considered& one) { return path.forced == one.backend->name; });
  for (const Considered& candidate : step.considered) {
    const std::string name = candidate.backend->name;
    if (forced_offers && path.forced != name) continue;
    if (candidate.backend->kind != path.device.kind && path.forced != name) {
      elsewhere.push_back(name);
      continue;
    }
    lines.push_back(concat(name, forced_offers ? " (forced): " : ": ", reasons_of(candidate.verdict)));
  }
  if (!elsewhere.empty()) lines.push_back(concat(join(elsewhere, ", "), ": for another kind of device"));
  if (lines.empty()) lines.emplace_back("the table has no row for it");
  return lines;
}

struct Premise {
  std::vector<std::string> operations;  // that fail for the same reasons
  std::vector<std::string> reasons;
};

std::vector<Premise> premises(const AttentionPath& path) {
  std::vector<Premise> found;
  for (const PathStep& step : path.steps) {
    if (step.chosen != nullptr) continue;
    const std::vector<std::string> why = reasons(path, step);
    const auto same = std::find_if(found.begin(), found.end(), [&](const Premise& one) { return one.reasons == why; });
    if (same != found.end()) {
      same->operations.push_back(step.operation);
    } else {
      found.push_back({{step.operation}, why});
    }
  }
  return found;
}

}  // namespace

std::string clause(const Refusal& refusal) {
  return concat(refusal.what, ": wants ", refusal.wanted, ", has ", refusal.found);
}

std::string describe(const LaunchFacts& launch) {
  std::vector<std::string> parts;
  if (launch.heads_per_block > 0) parts.push_back(plural(launch.heads_per_block, "head") + " per block");
  if (launch.rows_per_tile > 0) parts.push_back(plural(launch.rows_per_tile, "row") + " per tile");
  if (launch.stages > 0) parts.push_back(plural(launch.stages, "stage"));
  if (launch.splits > 1 || launch.stages > 0) parts.push_back(plural(launch.splits, "split"));
  if (launch.shared_bytes > 0) parts.push_back(kilobytes(launch.shared_bytes) + " shared memory");
  if (launch.workspace_bytes > 0) parts.push_back(kilobytes(launch.workspace_bytes) + " workspace");
  std::string facts = join(parts, ", ");
  if (launch.note.empty()) return facts;
  return facts.empty() ? launch.note : concat(facts, " (", launch.note, ")");
}

std::string describe(const DeviceInfo& device) {
  const std::string count = device.count > 1 ? concat(device.count, "x ") : "";
  if (device.kind == DeviceKind::cpu) return concat(count, device.name, " (", plural(device.units, "core"), ")");
  return concat(count, device.name, " (sm_", device.sm, ")");
}

std::string explain(const AttentionPath& path) {
  std::string text = concat("sparse attention on ", describe(path.device), "\n  ", describe(path.needs), "\n");
  std::size_t width = 0;
  for (const PathStep& step : path.steps) {
    for (const Considered& one : step.considered) width = std::max(width, std::string_view(one.backend->name).size());
  }
  const auto line = [&](const std::string& state, const std::string& name, const std::string& reason) {
    std::string words = concat("    ", padded(state, 9), padded(name, width + 2), reason);
    words.erase(words.find_last_not_of(' ') + 1);
    text += words + "\n";
  };
  std::vector<const Considered*> elsewhere;  // rows for other devices: one line each at the end, not one a step
  for (const PathStep& step : path.steps) {
    text += concat("  ", heading(path, step), "\n");
    const std::size_t before = text.size();
    for (const Considered& candidate : step.considered) {
      if (candidate.backend->kind == path.device.kind) {
        line(state_of(step, candidate), candidate.backend->name, reason_of(path, step, candidate));
      } else if (std::none_of(elsewhere.begin(), elsewhere.end(),
                              [&](const Considered* one) { return one->backend == candidate.backend; })) {
        elsewhere.push_back(&candidate);
      }
    }
    if (text.size() == before) text += "    no backend for this kind of device offers it\n";
  }
  if (!elsewhere.empty()) text += "  every operation\n";
  for (const Considered* one : elsewhere) line("refused", one->backend->name, reasons_of(one->verdict));
  return text;
}

std::vector<std::string> premises_of_refusal(const AttentionPath& path) {
  std::vector<std::string> lines;
  for (const Premise& premise : premises(path)) {
    lines.push_back(
        concat("nothing here does ", join(premise.operations, ", "), " (", join(premise.reasons, ". "), ")"));
  }
  return lines;
}

std::vector<std::string> changes_that_help(const AttentionPath& path) {
  std::vector<std::string> changes;
  if (path.admitted()) return changes;
  try_choice(path, changes);
  try_build(path, changes);
  try_formats(path, changes);
  try_sizes(path, changes);
  try_device(path, changes);
  return changes;
}

std::string why_no_path(const AttentionPath& path) {
  if (path.admitted()) return "";
  std::string text;
  for (const Premise& premise : premises(path)) {
    text += concat(text.empty() ? "  because" : "  and because", " nothing here does ", join(premise.operations, ", "),
                   ":\n    ", join(premise.reasons, "\n    "), "\n");
  }
  text += concat("  no attention path exists on ", describe(path.device), " for ", describe(path.needs), ".\n");
  const std::vector<std::string> changes = changes_that_help(path);
  if (changes.empty()) return text + "  No single change that was tried gives one.\n";
  text += "  Each of these changes gives one:\n";
  for (const std::string& change : changes) text += concat("    ", change, "\n");
  return text;
}

}  // namespace winnow
