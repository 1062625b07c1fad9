// SPDX-License-Identifier: Apache-2.0
// What would make a plan run: each change is planned again, and named when that plan can run.
#include <algorithm>

#include "core/text.hpp"
#include "plan/question.hpp"

namespace winnow {
namespace {

class Remedies {
 public:
  Remedies(const Subject& model, const Question& question, Plan& plan)
      : model_(model), question_(question), plan_(plan) {}

  void find() {
    choices();
    formats();
    sizes();
    devices();
  }

 private:
  void offer(const Question& changed, const std::string& words) {
    const Result<Plan> other = plan_once(model_, changed);
    if (other.ok() && other.value().can_run()) plan_.remedies.push_back(words);
  }

  void choices() {
    if (question_.options.attention.empty()) return;
    Question changed = question_;
    changed.options.attention.clear();
    offer(changed, concat("a free choice of backend (without --attention ", question_.options.attention, ")"));
    for (const Backend* row : in_order_for(question_.device)) {
      if (question_.options.attention == row->name) continue;
      changed.options.attention = row->name;
      offer(changed, concat("--attention ", row->name));
    }
  }

  void formats() {
    Question changed = question_;
    changed.options.rows = RowFormat::v32_fp8;
    changed.options.keys = KeyFormat::fp8;
    if (question_.options.rows != RowFormat::v32_fp8) offer(changed, "an fp8 cache (rows v32_fp8, keys fp8)");
    changed.options.rows = RowFormat::bf16;
    changed.options.keys = KeyFormat::bf16;
    if (question_.options.rows != RowFormat::bf16) offer(changed, "a bf16 cache (rows bf16, keys bf16)");
  }

  void sizes() {
    Question changed = question_;
    if (question_.options.context > 0 && plan_.context > 0) {
      changed.options.context = std::min(plan_.context, plan_.config.context);
      offer(changed, concat("a context of ", grouped(changed.options.context), " tokens"));
    }
    changed = question_;
    changed.options.sequences = 1;
    if (question_.options.sequences > 1) offer(changed, "one sequence at a time");
    smaller_weights();
  }

  // Bytes of weights that would fit beside one page (or the context that was asked for): about, because layers are
  // whole. Cannot be planned again, as there is no such file; named only when memory is all that is refused.
  void smaller_weights() {
    if (plan_.context > 0 || !memory_is_all()) return;
    const int64_t asked = std::max<int64_t>(question_.options.context, kPageSize);
    const int64_t cache = asked * question_.options.sequences * plan_.cache_bytes_per_token();
    const int64_t room = plan_.device.count * (plan_.usable_bytes - plan_.workspace_bytes) - cache;
    if (room <= 0) return;
    plan_.remedies.push_back(concat("a smaller quantisation: about ", short_bytes(room), " of weights (now ",
                                    short_bytes(plan_.weight_bytes), ")"));
  }

  void devices() {
    if (question_.device.kind == DeviceKind::cuda && memory_is_all()) more_gpus();
    Question changed = question_;
    changed.options.attention.clear();
    if (question_.device.kind == DeviceKind::cuda) {
      changed.device = {};
      changed.device.units = 1;
    }
    changed.device.described = question_.device.described;  // missing data stays missing
    changed.device.memory_bytes = memory_wanted(changed);
    offer(changed, concat("a CPU with at least ", both_bytes(changed.device.memory_bytes), " of memory"));
  }

  [[nodiscard]] bool memory_is_all() const {
    return plan_.refusals.size() == 1 && plan_.refusals[0].rfind("memory", 0) == 0;
  }

  void more_gpus() {
    Question changed = question_;
    for (int32_t count = question_.device.count + 1; count <= plan_.config.layers + 2; ++count) {
      changed.device.count = count;
      const Result<Plan> other = plan_once(model_, changed);
      if (!other.ok() || !other.value().can_run()) continue;
      plan_.remedies.push_back(concat(count, " of these devices"));
      return;
    }
  }

  // Memory of one device that holds everything for the context asked for, or for one page.
  [[nodiscard]] int64_t memory_wanted(const Question& question) const {
    Question large = question;
    large.device.memory_bytes = int64_t{1} << 60;
    large.options.context = std::max<int64_t>(question.options.context, kPageSize);
    const Result<Plan> plan = plan_once(model_, large);
    if (!plan.ok() || plan.value().shares.empty()) return 0;
    return memory_for(plan.value().shares[0].total_bytes());
  }

  const Subject& model_;
  const Question& question_;
  Plan& plan_;
};

}  // namespace

void add_remedies(const Subject& model, const Question& question, Plan& plan) {
  Remedies(model, question, plan).find();
}

}  // namespace winnow
