// SPDX-License-Identifier: Apache-2.0
// Why a plan cannot run: each refusal is a sentence with what was wanted and what was found.
#include <algorithm>

#include "core/text.hpp"
#include "plan/question.hpp"

namespace winnow {
namespace {

constexpr std::size_t kNamesShown = 3;  // of tensors in one refusal

void refuse_names(Plan& plan, const std::vector<std::string>& names, const char* before, const char* behind) {
  if (names.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) text += concat(i == 0 ? "" : ", ", names[i]);
  if (names.size() > kNamesShown) text += concat(" and ", names.size() - kNamesShown, " more");
  plan.refusals.push_back(concat(before, text, behind));
}

// Messages that are sentences already.
void refuse_each(Plan& plan, const std::vector<std::string>& messages) {
  const std::size_t shown = std::min(messages.size(), kNamesShown);
  plan.refusals.insert(plan.refusals.end(), messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(shown));
  if (messages.size() > shown) plan.refusals.push_back(concat(messages.size() - shown, " more tensors like these"));
}

void refuse_tensors(Plan& plan, const TensorReport& tensors) {
  refuse_names(plan, tensors.missing, "tensors: the graph wants ", ", the file lacks them");
  refuse_each(plan, tensors.wrong_shape);
  refuse_each(plan, tensors.unreadable);
}

// Rows that the path took although this build lacks them.
void refuse_absent(Plan& plan) {
  std::vector<const Backend*> named;
  for (const PathStep& step : plan.path.steps) {
    if (step.chosen == nullptr || step.chosen->built) continue;
    if (std::find(named.begin(), named.end(), step.chosen) != named.end()) continue;
    named.push_back(step.chosen);
    plan.refusals.push_back(concat(step.chosen->name, " is ", step.chosen->why_absent));
  }
}

void refuse_path(Plan& plan) {
  for (std::string& line : premises_of_refusal(plan.path)) plan.refusals.push_back(std::move(line));
  refuse_absent(plan);
  if (plan.device.kind == DeviceKind::cuda) {
    plan.refusals.emplace_back(
        "operations: the forward pass (linear layers, norms, rope, experts) wants operations for NVIDIA GPUs, this "
        "version has them for CPUs");
  }
}

void refuse_data(Plan& plan) {
  if (plan.missing_bytes == 0) return;
  const std::string missing = both_bytes(plan.missing_bytes);
  if (plan.device.described) {
    plan.notes.push_back(concat("the file lacks ", missing, " of its tensor data; the plan speaks of the whole model"));
  } else {
    plan.refusals.push_back(concat("file: wants all of its tensor data, lacks ", missing,
                                   "; is the download complete, or is this a header only?"));
  }
}

std::string has_memory(const Plan& plan) {
  return plan.device.count > 1 ? concat(plan.device.count, " x ", short_bytes(plan.usable_bytes))
                               : short_bytes(plan.usable_bytes);
}

// How many of these devices would do, in words.
std::string enough_devices(const Plan& plan, const Budget& budget, const DeviceRoom& room, int64_t pages) {
  if (plan.device.kind == DeviceKind::cpu) {
    DeviceRoom one = room;
    one.usable_bytes = 0;
    for (const Piece& piece : budget.pieces)
      one.usable_bytes += piece.weight_bytes + piece.cache_bytes_per_page * pages;
    return concat("; ", short_bytes(memory_for(one.usable_bytes + room.workspace_bytes)), " of memory would do");
  }
  const std::optional<int32_t> devices = fewest_devices(budget, room, pages);
  if (!devices) return "; one layer alone exceeds such a device";
  return concat("; ", *devices, " of these devices would hold it");
}

void refuse_memory(Plan& plan, const Budget& budget, const DeviceRoom& room, const CacheShape& cache) {
  const int64_t asked = plan.options.context > 0 ? plan.options.context : cache.page_size;
  const int64_t pages = pages_of(cache, asked, plan.options.sequences);
  if (plan.context > 0 && fits(budget, room, pages)) return;
  const std::string wanted =
      concat("memory: wants ", short_bytes(plan.weight_bytes), " for weights, ",
             short_bytes(pages * cache_bytes_per_page(cache)), " for a cache of ", plan.options.sequences, " x ",
             grouped(asked), " tokens and ", short_bytes(room.workspace_bytes), " of workspace on each device, has ",
             has_memory(plan), " usable");
  const std::string shorter = plan.context > 0 ? concat("; ", grouped(plan.context), " tokens would fit") : "";
  plan.refusals.push_back(wanted + shorter + enough_devices(plan, budget, room, pages));
}

void refuse_context(Plan& plan) {
  if (plan.options.context <= plan.config.context) return;
  plan.refusals.push_back(concat("context: wants at most ", grouped(plan.config.context),
                                 " tokens, as the model was trained, has ", grouped(plan.options.context)));
}

}  // namespace

void add_refusals(Plan& plan, const TensorReport& tensors, const Budget& budget, const DeviceRoom& room,
                  const CacheShape& cache) {
  refuse_tensors(plan, tensors);
  refuse_path(plan);
  refuse_memory(plan, budget, room, cache);
  refuse_context(plan);
  refuse_data(plan);
}

}  // namespace winnow
