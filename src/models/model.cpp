// SPDX-License-Identifier: Apache-2.0
#include "models/model.hpp"

#include "models/weights.hpp"
#include "ops/cpu/cpu_ops.hpp"

namespace winnow {

struct Model::State {
  ModelConfig config;
  std::vector<std::shared_ptr<MappedFile>> files;
  std::unique_ptr<Ops> ops;  // owns what load_weights placed on the device
  ModelWeights weights;
};

namespace {

void override_conventions(const ConventionOverrides& overrides, ModelConfig& config, ModelWeights& weights) {
  if (overrides.flip_indexer_rope) {
    const bool interleaved = config.indexer_rope == RopeLayout::interleaved;
    config.indexer_rope = interleaved ? RopeLayout::half_split : RopeLayout::interleaved;
  }
  if (overrides.forget_yarn_factor) config.yarn.mscale_all_dim = 0;
  IndexerWeights last;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    IndexerWeights& indexer = weights.layers[i].indexer;
    if (overrides.drop_k_norm_bias) indexer.k_bias = {};
    if (overrides.recompute_shared_layers && config.has_indexer()) {
      if (indexer.empty()) indexer = last;
      config.full_indexer[i] = true;
    }
    last = indexer;
  }
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, const LoadOptions& options) {
  WINNOW_TRY(checkpoint.require_data());
  auto state = std::make_unique<State>();
  WINNOW_TRY_ASSIGN(state->config, read_config(checkpoint));
  WINNOW_TRY(report_tensors(checkpoint, state->config).status().in(checkpoint.path));
  state->files = checkpoint.mappings;
  state->ops = make_cpu_ops(host_cpu());
  WINNOW_TRY_ASSIGN(state->weights, load_weights(checkpoint, state->config, *state->ops));
  override_conventions(options.conventions, state->config, state->weights);
  return std::unique_ptr<Model>(new Model(std::move(state)));
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return state_->config; }
const ModelWeights& Model::weights() const { return state_->weights; }
int64_t Model::mapped_bytes() const { return state_->weights.mapped_bytes; }
int64_t Model::owned_bytes() const { return state_->weights.owned_bytes; }

}  // namespace winnow
