// SPDX-License-Identifier: Apache-2.0
// Model: weights of one checkpoint, ready to run. Runner: the forward pass over steps of several sequences.
//
// A Model is immutable and shared; weights stay in the mapped file (only norms, biases and transposed halves of an
// unsplit kv_b are copies). A Runner owns the scratch memory of one stream of steps and the attention path it chose.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "contract/row_format.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"
#include "select/select.hpp"

namespace winnow {

struct ModelWeights;  // models/weights.hpp

// Mistakes that others made with these models, on purpose: a test loads with one of them and must see verify fail.
struct ConventionOverrides {
  bool flip_indexer_rope = false;        // the other pairing of the indexer's rotated half
  bool drop_k_norm_bias = false;         // LayerNorm of the index key without its bias
  bool recompute_shared_layers = false;  // shared layers score by themselves, with weights of the last full layer
  bool forget_yarn_factor = false;       // softmax scale without the YaRN m^2
};

struct LoadOptions {
  ConventionOverrides conventions;
};

class Model {
 public:
  // not_found naming a tensor that the graph needs and the file lacks; corrupt_data for one of the wrong shape (wanted
  // and found); unsupported for a storage type that has no decoder (named); io_error when tensor data is cut off.
  // The mapped files stay open as long as the model; the checkpoint itself may go.
  [[nodiscard]] static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint,
                                                           const LoadOptions& options = {});
  ~Model();

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] const ModelWeights& weights() const;
  [[nodiscard]] int64_t mapped_bytes() const;  // weights that are read in place
  [[nodiscard]] int64_t owned_bytes() const;   // weights that were copied
 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct RunnerOptions {
  int32_t step_tokens = 512;  // most tokens of one step
  int64_t context = 0;        // positions of one sequence, 0: the model's own
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::bf16;
  std::string attention;  // forced backend name, or empty
  bool dense = false;     // ignore the indexer: every token reads every earlier one
};

// What a KvCache for this runner must hold; `dense` caches have no index keys.
[[nodiscard]] CacheShape cache_shape(const ModelConfig& config, const RunnerOptions& options);
// What choose_path is asked for this runner; plan asks the same.
[[nodiscard]] AttentionNeeds attention_needs(const ModelConfig& config, const RunnerOptions& options);
// Scratch memory of a runner, without logits and backend workspaces.
[[nodiscard]] int64_t workspace_bytes(const ModelConfig& config, const RunnerOptions& options);

// Tokens of several sequences, flattened. Tokens of one sequence stand in ascending order of position without gaps, and
// begin where the cache of that sequence ends; the cache has pages reserved for them. 1 to step_tokens tokens.
struct StepBatch {
  std::span<const int32_t> tokens;      // [tokens] ids, inside the vocabulary
  std::span<const int32_t> sequences;   // [tokens] sequence ids of the cache
  std::span<const int32_t> positions;   // [tokens]
  std::span<const int32_t> logit_rows;  // tokens whose logits are wanted, ascending; may be empty or all
  bool capture_selections = false;      // also return what the indexer chose: slow, for verify and inspection
};

// What one full layer chose, when captured.
struct LayerSelection {
  int64_t layer = 0;  // index of the layer
  int64_t topk = 0;
  std::vector<int32_t> positions;  // [tokens, topk] ascending, then -1
  // [tokens] (kth - next score) / largest |score| of the token: how clear the cut was. Infinite when the token sees no
  // more than topk positions.
  std::vector<float> boundary_gap;
};

struct StepResult {
  TensorView<const float> logits;          // [logit_rows, vocab]; the runner's, valid until its next step
  std::vector<LayerSelection> selections;  // one per full layer, when captured
  int64_t rows_read = 0;                   // cache rows that attention read in this step, all layers
  int64_t rows_visible = 0;                // what a dense model would have read
};

class Runner {
 public:
  // unsupported with the proof of why_no_path when no attention path exists; out_of_memory.
  [[nodiscard]] static Result<std::unique_ptr<Runner>> create(const Model& model, const RunnerOptions& options);
  ~Runner();

  // Writes latent rows and index keys of the tokens to the cache and computes logits. invalid_argument for a batch that
  // breaks a rule above. corrupt_data when a value is NaN or infinite, naming layer, place and position.
  [[nodiscard]] Result<StepResult> step(const StepBatch& batch, KvCache& cache);

  [[nodiscard]] const AttentionPath& path() const;
  [[nodiscard]] const RunnerOptions& options() const;

 private:
  struct State;
  explicit Runner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace winnow
