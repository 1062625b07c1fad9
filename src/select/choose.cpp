// SPDX-License-Identifier: Apache-2.0
// Joint admission: four operations, one row format, one key format, one page size. Each operation takes the first row
// that admits it; the path exists when all four have one. Formats are part of the question, so whatever is chosen for
// one step can read what the others wrote.
#include <algorithm>
#include <limits>

#include "select/select.hpp"

namespace winnow {
namespace {

// One operation of the path as a question that any row can be asked.
struct Operation {
  const char* name;
  bool (*offered)(const Backend&);
  Verdict (*ask)(const Backend&, const AttentionNeeds&, const DeviceInfo&);
};

SparseMlaProblem mla_problem(const AttentionNeeds& needs, int32_t tokens) {
  SparseMlaProblem problem;
  problem.tokens = tokens;
  problem.q_heads = needs.q_heads;
  problem.topk = needs.topk;
  problem.page_size = needs.page_size;
  problem.d_nope = needs.d_nope;
  problem.d_rope = needs.d_rope;
  problem.d_v = needs.d_v;
  problem.softmax_scale = needs.softmax_scale;
  problem.rows = needs.rows;
  problem.activations = needs.activations;
  return problem;
}

IndexSelectProblem select_problem(const AttentionNeeds& needs, int32_t tokens) {
  IndexSelectProblem problem;
  problem.tokens = tokens;
  problem.index_heads = needs.index_heads;
  problem.index_dim = needs.index_dim;
  problem.topk = needs.topk;
  problem.page_size = needs.page_size;
  problem.max_len = needs.context;
  problem.keys = needs.keys;
  // 8-bit keys meet 8-bit queries where activations are 16 bits: the product is then one kind of MMA.
  const bool quantised = needs.keys == KeyFormat::fp8 && needs.activations == DType::bf16;
  problem.q_type = quantised ? DType::e4m3 : needs.activations;
  problem.output_slots = true;
  return problem;
}

CacheWriteProblem write_problem(const AttentionNeeds& needs, int32_t tokens) {
  CacheWriteProblem problem;
  problem.tokens = tokens;
  problem.d_nope = needs.d_nope;
  problem.d_rope = needs.d_rope;
  problem.index_dim = needs.index_heads > 0 ? needs.index_dim : 0;
  problem.page_size = needs.page_size;
  problem.rows = needs.rows;
  problem.keys = needs.keys;
  problem.activations = needs.activations;
  return problem;
}

bool offers_write(const Backend& row) { return row.admits_write != nullptr; }
bool offers_select(const Backend& row) { return row.admits_select != nullptr; }
bool offers_mla(const Backend& row) { return row.admits_mla != nullptr; }

int32_t step_tokens(const AttentionNeeds& needs) { return std::max(needs.decode_tokens, needs.prefill_tokens); }

Verdict ask_write(const Backend& row, const AttentionNeeds& needs, const DeviceInfo& device) {
  return row.admits_write(row, write_problem(needs, step_tokens(needs)), device);
}
Verdict ask_select(const Backend& row, const AttentionNeeds& needs, const DeviceInfo& device) {
  return row.admits_select(row, select_problem(needs, step_tokens(needs)), device);
}
Verdict ask_prefill(const Backend& row, const AttentionNeeds& needs, const DeviceInfo& device) {
  return row.admits_mla(row, mla_problem(needs, needs.prefill_tokens), device);
}
Verdict ask_decode(const Backend& row, const AttentionNeeds& needs, const DeviceInfo& device) {
  return row.admits_mla(row, mla_problem(needs, needs.decode_tokens), device);
}

std::vector<Operation> operations_of(const AttentionNeeds& needs) {
  std::vector<Operation> operations = {{"cache write", offers_write, ask_write}};
  if (needs.index_heads > 0) operations.push_back({"index select", offers_select, ask_select});
  operations.push_back({"prefill attention", offers_mla, ask_prefill});
  operations.push_back({"decode attention", offers_mla, ask_decode});
  return operations;
}

const char* name_of(DeviceKind kind) { return kind == DeviceKind::cpu ? "a CPU" : "an NVIDIA GPU"; }

bool offers_nothing(const Backend& row) { return !offers_write(row) && !offers_select(row) && !offers_mla(row); }

// The kind comes first: a predicate need not make sense of a device of another kind, so it is not asked then.
Verdict consider(const Backend& row, const Operation& operation, const AttentionPath& path) {
  Verdict verdict;
  if (row.kind != path.device.kind) {
    verdict.need(false, "device", name_of(row.kind), name_of(path.device.kind));
    return verdict;
  }
  if (operation.offered(row)) verdict = operation.ask(row, path.needs, path.device);
  if (!row.built && !path.ignore_absence) verdict.need(false, "built", "yes", concat("no: ", row.why_absent));
  if (!operation.offered(row))
    verdict.need(false, "operation", operation.name, "nothing, this build knows its name only");
  return verdict;
}

PathStep decide(const Operation& operation, std::span<const Backend* const> rows, const AttentionPath& path) {
  PathStep step;
  step.operation = operation.name;
  bool forced_offers = false;
  for (const Backend* row : rows) {
    if (!operation.offered(*row) && !offers_nothing(*row)) continue;
    forced_offers = forced_offers || path.forced == row->name;
    step.considered.push_back({row, consider(*row, operation, path)});
  }
  for (const Considered& candidate : step.considered) {
    if (forced_offers && path.forced != candidate.backend->name) continue;
    if (!candidate.verdict.admitted()) continue;
    step.chosen = candidate.backend;
    step.launch = candidate.verdict.launch;
    break;
  }
  return step;
}

Status check_forced(std::span<const Backend* const> rows, std::string_view forced) {
  if (forced.empty()) return {};
  std::string names;
  for (const Backend* row : rows) {
    if (forced == row->name) return {};
    names += concat(names.empty() ? "" : ", ", row->name);
  }
  return error(StatusCode::invalid_argument, "--attention wants the name of a backend, found ", forced, "; there are ",
               names.empty() ? "none" : names);
}

}  // namespace

bool AttentionPath::admitted() const {
  return std::all_of(steps.begin(), steps.end(), [](const PathStep& step) { return step.chosen != nullptr; });
}

const PathStep& AttentionPath::step(std::string_view operation) const {
  static const PathStep none;
  for (const PathStep& candidate : steps) {
    if (candidate.operation == operation) return candidate;
  }
  return none;
}

Result<AttentionPath> choose_path_among(std::span<const Backend* const> rows, const AttentionNeeds& needs,
                                        const DeviceInfo& device, std::string_view forced, bool ignore_absence) {
  WINNOW_TRY(check_forced(rows, forced));
  AttentionPath path;
  path.needs = needs;
  path.device = device;
  path.forced = forced;
  path.ignore_absence = ignore_absence;
  path.rows.assign(rows.begin(), rows.end());
  for (const Operation& operation : operations_of(needs)) path.steps.push_back(decide(operation, rows, path));
  return path;
}

Result<AttentionPath> choose_path(const AttentionNeeds& needs, const DeviceInfo& device, std::string_view forced,
                                  bool ignore_absence) {
  return choose_path_among(in_order_for(device), needs, device, forced, ignore_absence);
}

}  // namespace winnow
