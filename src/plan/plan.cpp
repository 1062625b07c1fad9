// SPDX-License-Identifier: Apache-2.0
// A plan is made once for the question asked, and again for each change that might help: what is named as a remedy was
// planned and can run.
#include "plan/plan.hpp"

#include <algorithm>

#include "cache/kv_cache.hpp"
#include "core/checked.hpp"
#include "models/model.hpp"
#include "models/tensors.hpp"
#include "plan/budget.hpp"
#include "plan/traffic.hpp"
#include "plan/units.hpp"

namespace winnow {
namespace {

constexpr int64_t kManyContext = 32768;  // for "how many sequences"
constexpr int64_t kMostSequences = 1 << 20;
constexpr std::size_t kNamesShown = 3;  // of tensors in one refusal

// What does not change between a plan and its remedies.
struct Subject {
  const Checkpoint* checkpoint = nullptr;
  ModelConfig config;
  TensorReport tensors;
};

// One question about it.
struct Question {
  DeviceInfo device;
  PlanOptions options;
};

RunnerOptions runner_options(const PlanOptions& options, int64_t context) {
  RunnerOptions runner;
  runner.step_tokens = options.step_tokens;
  runner.context = context;
  runner.rows = options.rows;
  runner.keys = options.keys;
  runner.attention = options.attention;
  runner.dense = options.dense;
  return runner;
}

AttentionNeeds needs_of(const ModelConfig& config, const Question& question, int64_t context) {
  AttentionNeeds needs = attention_needs(config, runner_options(question.options, context));
  needs.decode_tokens = question.options.sequences;
  needs.activations = question.device.kind == DeviceKind::cpu ? DType::f32 : DType::bf16;
  return needs;
}

int64_t scratch_of_path(const AttentionPath& path) {
  int64_t most = 0;
  for (const PathStep& step : path.steps) most = std::max(most, step.launch.workspace_bytes);
  return most;
}

int64_t logits_bytes(const ModelConfig& config, const PlanOptions& options) {
  return config.vocab * options.sequences * static_cast<int64_t>(sizeof(float));
}

// Pages of n sequences of one length.
int64_t pages_of(const CacheShape& cache, int64_t context, int64_t sequences) {
  return pages_for(cache, context) * sequences;
}

// Refusals --------------------------------------------------------------------------------------------------------

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
    plan.refusals.push_back(concat(step.chosen->name, ": wants to be in this build, is ", step.chosen->why_absent));
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

// One plan --------------------------------------------------------------------------------------------------------

void count_bytes(Plan& plan, const Subject& model, const Budget& budget, const CacheShape& cache) {
  plan.weight_bytes = budget.totals.bytes();
  plan.missing_bytes = model.checkpoint->missing_bytes();
  plan.latent_bytes_per_token = latent_bytes_per_token(cache);
  plan.key_bytes_per_token = key_bytes_per_token(cache);
  int64_t all = 0;
  for (const TensorInfo& tensor : model.checkpoint->tensors) all += tensor.bytes;
  plan.left_aside_bytes = std::max<int64_t>(0, all - plan.weight_bytes);
}

// Answers what fits for one question. The workspace grows with the context (index scores, lists of a dense model), so
// room is a function of it and every fit is tried with its own.
class Fitting {
 public:
  Fitting(const Subject& model, const Question& question, const Budget& budget, const CacheShape& cache)
      : model_(model), question_(question), budget_(budget), cache_(cache) {}

  [[nodiscard]] Result<AttentionPath> path(int64_t context) const {
    return choose_path(needs_of(model_.config, question_, context), question_.device, question_.options.attention,
                       question_.device.kind == DeviceKind::cuda);
  }

  [[nodiscard]] DeviceRoom room(int64_t context) const {
    const Result<AttentionPath> chosen = path(context);
    const int64_t workspace = workspace_bytes(model_.config, runner_options(question_.options, context)) +
                              (chosen.ok() ? scratch_of_path(chosen.value()) : 0) +
                              logits_bytes(model_.config, question_.options);
    return {question_.device.count, usable_of(question_.device.memory_bytes), workspace};
  }

  [[nodiscard]] bool holds(int64_t context, int64_t sequences) const {
    return fits(budget_, room(context), pages_of(cache_, context, sequences));
  }

  // Positions of each of `sequences`, whole pages, at most what the model knows; 0: not one page.
  [[nodiscard]] int64_t largest_context(int64_t sequences) const {
    if (holds(model_.config.context, sequences)) return model_.config.context;
    int64_t low = 0, high = pages_for(cache_, model_.config.context);  // pages: low holds, high does not
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (holds(middle * cache_.page_size, sequences) ? low : high) = middle;
    }
    return low * cache_.page_size;
  }

  [[nodiscard]] int64_t most_sequences(int64_t context) const {
    const int64_t pages = pages_for(cache_, context);
    return most_pages(budget_, room(context), pages * kMostSequences) / pages;
  }

 private:
  const Subject& model_;
  const Question& question_;
  const Budget& budget_;
  const CacheShape& cache_;
};

void size_contexts(Plan& plan, const Fitting& fitting) {
  plan.largest_context = fitting.largest_context(1);
  plan.context = plan.options.sequences == 1 ? plan.largest_context : fitting.largest_context(plan.options.sequences);
  if (plan.options.context > 0) plan.context = std::min(plan.context, plan.options.context);
  plan.many_context = std::min(kManyContext, plan.config.context);
  plan.many_sequences = fitting.most_sequences(plan.many_context);
}

void predict(Plan& plan, const Budget& budget) {
  TrafficInputs traffic;
  traffic.config = &plan.config;
  traffic.weights = budget.totals;
  traffic.latent_bytes_per_token = plan.latent_bytes_per_token;
  traffic.key_bytes_per_token = plan.key_bytes_per_token;
  traffic.dense = plan.options.dense;
  plan.active_weight_bytes = active_weight_bytes(traffic);
  if (plan.context == 0) return;
  plan.speed_context = std::min(plan.context, kManyContext);
  plan.decode = decode_speed(traffic, plan.device, plan.options.sequences, plan.speed_context);
  plan.prefill = prefill_speed(traffic, plan.device, plan.speed_context, plan.options.step_tokens);
}

Result<Plan> plan_once(const Subject& model, const Question& question) {
  Plan plan;
  plan.source = model.checkpoint->path;
  plan.config = model.config;
  plan.device = question.device;
  plan.options = question.options;
  const CacheShape cache = cache_shape(model.config, runner_options(question.options, model.config.context));
  const Budget budget = make_budget(*model.checkpoint, model.config, model.tensors, cache, question.device.count);
  count_bytes(plan, model, budget, cache);
  const Fitting fitting(model, question, budget, cache);
  size_contexts(plan, fitting);
  // What is asked for is planned even when it does not fit, so that the refusal can say by how much.
  const int64_t context = question.options.context > 0 ? question.options.context
                          : plan.context > 0           ? plan.context
                                                       : int64_t{cache.page_size};
  WINNOW_TRY_ASSIGN(plan.path, fitting.path(context));
  const DeviceRoom room = fitting.room(context);
  plan.usable_bytes = room.usable_bytes;
  plan.workspace_bytes = room.workspace_bytes;
  if (plan.context > 0) {
    plan.shares = split(budget, fitting.room(plan.context), pages_of(cache, plan.context, plan.options.sequences))
                      .value_or(std::vector<DeviceShare>());
  }
  predict(plan, budget);
  refuse_tensors(plan, model.tensors);
  refuse_path(plan);
  refuse_memory(plan, budget, room, cache);
  refuse_context(plan);
  refuse_data(plan);
  return plan;
}

// Remedies --------------------------------------------------------------------------------------------------------

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

Status check_options(const PlanOptions& options) {
  if (options.sequences < 1 || options.sequences > kMostSequences) {
    return error(StatusCode::invalid_argument, "plan: sequences wants 1 to ", kMostSequences, ", has ",
                 options.sequences);
  }
  if (options.step_tokens < 1 || options.step_tokens > 1 << 20) {
    return error(StatusCode::invalid_argument, "plan: step_tokens wants 1 to 1048576, has ", options.step_tokens);
  }
  if (options.context < 0 || options.context > int64_t{1} << 31) {
    return error(StatusCode::invalid_argument, "plan: context wants 0 to 2147483648, has ", options.context);
  }
  return {};
}

void add_notes(Plan& plan, const TensorReport& tensors) {
  if (!tensors.mtp.empty()) {
    plan.notes.push_back(concat(tensors.mtp.size(), " tensors of MTP layers are left aside"));
  }
  if (!tensors.unused.empty()) {
    plan.notes.push_back(concat(tensors.unused.size(), " tensors are used by nothing; winnow inspect lists them"));
  }
  if (plan.device.count > 1) {
    plan.notes.emplace_back("layers are split over the devices: one step uses one device after the other");
  }
  if (plan.device.kind == DeviceKind::cpu && !plan.device.described) {
    plan.notes.emplace_back(
        "bandwidth was measured just now, arithmetic is the clock times two ports of the widest vectors");
  }
}

}  // namespace

Result<Plan> make_plan(const Checkpoint& checkpoint, const DeviceInfo& device, const PlanOptions& options) {
  WINNOW_TRY(check_options(options));
  Subject model;
  model.checkpoint = &checkpoint;
  WINNOW_TRY_ASSIGN(model.config, read_config(checkpoint));
  model.tensors = report_tensors(checkpoint, model.config, options.dense);
  const Question question{device, options};
  WINNOW_TRY_ASSIGN(Plan plan, plan_once(model, question));
  add_notes(plan, model.tensors);
  if (!plan.can_run()) Remedies(model, question, plan).find();
  return plan;
}

}  // namespace winnow
