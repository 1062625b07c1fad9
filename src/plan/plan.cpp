// SPDX-License-Identifier: Apache-2.0
// A plan is made once for the question asked, and again for each change that might help: what is named as a remedy was
// planned and can run.
#include "plan/plan.hpp"

#include <algorithm>

#include "cache/kv_cache.hpp"
#include "models/model.hpp"
#include "models/tensors.hpp"
#include "plan/budget.hpp"
#include "plan/question.hpp"
#include "plan/traffic.hpp"

namespace winnow {
namespace {

constexpr int64_t kManyContext = 32768;  // for "how many sequences"
constexpr int64_t kMostSequences = 1 << 20;

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
  add_refusals(plan, model.tensors, budget, room, cache);
  return plan;
}

Result<Plan> make_plan(const Checkpoint& checkpoint, const DeviceInfo& device, const PlanOptions& options) {
  WINNOW_TRY(check_options(options));
  Subject model;
  model.checkpoint = &checkpoint;
  WINNOW_TRY_ASSIGN(model.config, read_config(checkpoint));
  model.tensors = report_tensors(checkpoint, model.config, options.dense);
  const Question question{device, options};
  WINNOW_TRY_ASSIGN(Plan plan, plan_once(model, question));
  add_notes(plan, model.tensors);
  if (!plan.can_run()) add_remedies(model, question, plan);
  return plan;
}

}  // namespace winnow
