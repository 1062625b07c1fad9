// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "models/mla_family.hpp"
#include "models/model.hpp"
#include "models/selection_capture.hpp"
#include "ops/cpu/cpu_ops.hpp"

namespace winnow {

CacheShape cache_shape(const ModelConfig& config, const RunnerOptions& options) {
  CacheShape shape;
  shape.layers = config.layers;
  shape.d_nope = static_cast<int32_t>(config.kv_lora);
  shape.d_rope = static_cast<int32_t>(config.head_rope);
  shape.rows = options.rows;
  shape.keys = options.keys;
  if (!uses_indexer(config, options)) return shape;
  shape.full_indexer = config.full_indexer;
  shape.index_dim = static_cast<int32_t>(config.index_dim);
  return shape;
}

AttentionNeeds attention_needs(const ModelConfig& config, const RunnerOptions& options) {
  AttentionNeeds needs;
  needs.q_heads = static_cast<int32_t>(config.heads);
  needs.d_nope = needs.d_v = static_cast<int32_t>(config.kv_lora);
  needs.d_rope = static_cast<int32_t>(config.head_rope);
  needs.topk = static_cast<int32_t>(list_width(config, options));
  if (uses_indexer(config, options)) {
    needs.index_heads = static_cast<int32_t>(config.index_heads);
    needs.index_dim = static_cast<int32_t>(config.index_dim);
  }
  needs.softmax_scale = config.softmax_scale();
  needs.page_size = kPageSize;
  needs.prefill_tokens = options.step_tokens;
  needs.context = context_of(config, options);
  needs.activations = DType::f32;
  needs.rows = options.rows;
  needs.keys = options.keys;
  return needs;
}

struct Runner::State {
  const Model& model;
  RunnerOptions options;
  AttentionPath path;
  std::unique_ptr<Ops> ops;
  Workspace memory;
  Execution execution;
  std::vector<float> logits;  // host
  std::byte* device_logits = nullptr;
  int64_t device_logit_rows = 0;

  State(const Model& model_in, RunnerOptions options_in) : model(model_in), options(std::move(options_in)) {}

  [[nodiscard]] const ModelConfig& config() const { return model.config(); }

  Status prepare();
  Status check(const StepBatch& batch, const KvCache& cache) const;
  Status reserve_logits(int64_t rows);
  void upload_batch(const StepBatch& batch, const KvCache& cache, StepResult& result);
  void fill_dense_lists(const StepBatch& batch, const KvCache& cache, int64_t first, int64_t count);
  LayerSelection capture(int64_t layer, const StepBatch& batch, const KvCache& cache);
  Status finish(const StepBatch& batch);

  template <class T>
  void upload(const TensorView<T>& view, const std::vector<T>& values) {
    ops->upload(reinterpret_cast<std::byte*>(view.data), values.data(),
                static_cast<int64_t>(values.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> download(const TensorView<T>& view, int64_t rows) {
    std::vector<T> values(static_cast<std::size_t>(rows * view.stride(0)));
    ops->download(values.data(), reinterpret_cast<const std::byte*>(view.data),
                  static_cast<int64_t>(values.size() * sizeof(T)));
    return values;
  }
};

Status Runner::State::prepare() {
  if (options.step_tokens < 1 || options.step_tokens > 1 << 16) {
    return error(StatusCode::invalid_argument, "step_tokens is ", options.step_tokens, ", wants 1 to 65536");
  }
  options.context = context_of(config(), options);
  if (options.context < 1 || options.context > int64_t{1} << 30) {
    return error(StatusCode::invalid_argument, "context is ", options.context, ", wants 1 to 2^30");
  }
  WINNOW_TRY_ASSIGN(path, choose_path(attention_needs(config(), options), host_cpu(), options.attention));
  if (!path.admitted()) return error(StatusCode::unsupported, why_no_path(path));
  ops = make_cpu_ops(path.device);
  WINNOW_TRY_ASSIGN(std::byte * base, ops->allocate(workspace_bytes(config(), options)));
  memory = lay_out(config(), options, base);
  for (const PathStep& step : path.steps) {
    execution.workspace_bytes = std::max(execution.workspace_bytes, step.launch.workspace_bytes);
  }
  WINNOW_TRY_ASSIGN(execution.workspace, ops->allocate(execution.workspace_bytes));
  return Status();
}

Status Runner::State::check(const StepBatch& batch, const KvCache& cache) const {
  const std::size_t tokens = batch.tokens.size();
  if (tokens == 0 || tokens > static_cast<std::size_t>(options.step_tokens) || batch.sequences.size() != tokens ||
      batch.positions.size() != tokens) {
    return error(StatusCode::invalid_argument, "step: ", tokens, " tokens, ", batch.sequences.size(), " sequences, ",
                 batch.positions.size(), " positions; wants the same number, 1 to ", options.step_tokens);
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    const int32_t sequence = batch.sequences[t], position = batch.positions[t];
    if (batch.tokens[t] < 0 || batch.tokens[t] >= config().vocab) {
      return error(StatusCode::invalid_argument, "step: token ", batch.tokens[t], " is outside the vocabulary of ",
                   config().vocab);
    }
    if (sequence < 0 || sequence >= cache.page_table().size(0)) {
      return error(StatusCode::invalid_argument, "step: sequence ", sequence, " is not one of the cache's");
    }
    const int64_t reserved = cache.pages_of(sequence) * cache.shape().page_size;
    if (position < 0 || position >= std::min(reserved, options.context)) {
      return error(StatusCode::invalid_argument, "step: position ", position, " of sequence ", sequence,
                   ", the cache has ", reserved, " reserved and the context is ", options.context);
    }
    if (t > 0 && batch.sequences[t - 1] == sequence && position != batch.positions[t - 1] + 1) {
      return error(StatusCode::invalid_argument, "step: positions of sequence ", sequence, " jump from ",
                   batch.positions[t - 1], " to ", position);
    }
  }
  for (int32_t row : batch.logit_rows) {
    if (row < 0 || static_cast<std::size_t>(row) >= tokens) {
      return error(StatusCode::invalid_argument, "step: logits of row ", row, " of ", tokens, " are wanted");
    }
  }
  return batch.logit_rows.size() <= tokens
             ? Status()
             : error(StatusCode::invalid_argument, "step: logits of more rows than tokens are wanted");
}

Status Runner::State::reserve_logits(int64_t rows) {
  logits.resize(static_cast<std::size_t>(rows * config().vocab));
  if (rows <= device_logit_rows) return Status();
  const int64_t grown = std::min<int64_t>(std::max(rows, 2 * device_logit_rows), options.step_tokens);
  WINNOW_TRY_ASSIGN(device_logits, ops->allocate(grown * config().vocab * static_cast<int64_t>(sizeof(float))));
  device_logit_rows = grown;
  return Status();
}

void Runner::State::upload_batch(const StepBatch& batch, const KvCache& cache, StepResult& result) {
  const std::size_t tokens = batch.tokens.size();
  std::vector<int32_t> visible(tokens), slots(tokens), count(tokens);
  const bool indexer = uses_indexer(config(), options);
  for (std::size_t t = 0; t < tokens; ++t) {
    visible[t] = batch.positions[t] + 1;
    slots[t] = cache.slot(batch.sequences[t], batch.positions[t]);
    count[t] = indexer ? static_cast<int32_t>(std::min<int64_t>(visible[t], memory.read_slots.size(1))) : visible[t];
    result.rows_read += count[t] * config().layers;
    result.rows_visible += visible[t] * config().layers;
  }
  upload(memory.ids, std::vector<int32_t>(batch.tokens.begin(), batch.tokens.end()));
  upload(memory.sequences, std::vector<int32_t>(batch.sequences.begin(), batch.sequences.end()));
  upload(memory.positions, std::vector<int32_t>(batch.positions.begin(), batch.positions.end()));
  upload(memory.wanted, std::vector<int32_t>(batch.logit_rows.begin(), batch.logit_rows.end()));
  upload(memory.visible, visible);
  upload(memory.slots, slots);
  upload(memory.read_count, count);
}

void Runner::State::fill_dense_lists(const StepBatch& batch, const KvCache& cache, int64_t first, int64_t count) {
  std::vector<int32_t> list;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t sequence = batch.sequences[first + i], last = batch.positions[first + i];
    list.resize(static_cast<std::size_t>(last) + 1);
    for (int32_t p = 0; p <= last; ++p) list[p] = cache.slot(sequence, p);
    ops->upload(reinterpret_cast<std::byte*>(memory.read_slots.row(i)), list.data(),
                static_cast<int64_t>(list.size() * sizeof(int32_t)));
  }
}

LayerSelection Runner::State::capture(int64_t layer, const StepBatch& batch, const KvCache& cache) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const std::vector<float> q = download(memory.index_q, tokens), weight = download(memory.index_weight, tokens);
  const std::vector<int32_t> read_slots = download(memory.read_slots, tokens);
  return capture_selection(
      layer, batch, cache,
      {q, weight, read_slots, config().index_heads, config().index_dim, memory.read_slots.size(1)});
}

Status Runner::State::finish(const StepBatch& batch) {
  WINNOW_TRY_ASSIGN(const Ops::NotFinite found, ops->finish());
  if (found.where < 0) return Status();
  const Place place = Place::of(found.where);
  const int32_t token = place.part == Part::head ? batch.logit_rows[found.row] : found.row;
  std::string where;
  switch (place.part) {
    case Part::embedding: where = "token embedding"; break;
    case Part::indexer: where = concat("layer ", place.layer, ", indexer"); break;
    case Part::attention: where = concat("layer ", place.layer, ", attention"); break;
    case Part::feed_forward: where = concat("layer ", place.layer, ", feed-forward network"); break;
    case Part::head: where = "output head"; break;
  }
  return error(StatusCode::corrupt_data, where, ": a value is NaN or infinite at position ", batch.positions[token],
               " of sequence ", batch.sequences[token], ", everything before it was finite; its weights are damaged");
}

Result<std::unique_ptr<Runner>> Runner::create(const Model& model, const RunnerOptions& options) {
  auto state = std::make_unique<State>(model, options);
  WINNOW_TRY(state->prepare());
  return std::unique_ptr<Runner>(new Runner(std::move(state)));
}

Result<StepResult> Runner::step(const StepBatch& batch, KvCache& cache) {
  State& s = *state_;
  WINNOW_TRY(s.check(batch, cache));
  StepResult result;
  s.upload_batch(batch, cache, result);
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  WINNOW_TRY(s.reserve_logits(wanted));
  MlaStep step{s.config(), s.model.weights(), s.options, s.path, *s.ops, cache, s.memory, s.execution};
  step.tokens = static_cast<int64_t>(batch.tokens.size());
  step.wanted = wanted;
  step.longest = *std::max_element(batch.positions.begin(), batch.positions.end()) + 1;
  step.decode = std::adjacent_find(batch.sequences.begin(), batch.sequences.end()) == batch.sequences.end();
  step.logits = TensorView<float>(reinterpret_cast<float*>(s.device_logits), {wanted, s.config().vocab});
  step.fill_dense_lists = [&](int64_t first, int64_t count) { s.fill_dense_lists(batch, cache, first, count); };
  if (batch.capture_selections) {
    step.on_selection = [&](int64_t layer) { result.selections.push_back(s.capture(layer, batch, cache)); };
  }
  WINNOW_TRY(run_mla_family(step));
  WINNOW_TRY(s.finish(batch));
  if (wanted > 0) {
    s.ops->download(s.logits.data(), s.device_logits, static_cast<int64_t>(s.logits.size() * sizeof(float)));
  }
  result.logits = TensorView<const float>(s.logits.data(), {wanted, s.config().vocab});
  return result;
}

Runner::Runner(std::unique_ptr<State> state) : state_(std::move(state)) {}
Runner::~Runner() = default;
const AttentionPath& Runner::path() const { return state_->path; }
const RunnerOptions& Runner::options() const { return state_->options; }

}  // namespace winnow
