// SPDX-License-Identifier: Apache-2.0
// Weights of the MLA family, under the names of the equations that use them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.hpp"
#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "models/config.hpp"
#include "models/tensors.hpp"
#include "ops/ops.hpp"

namespace winnow {

using Vector = TensorView<const float>;  // [n] float32, in memory of the device

struct FfnWeights {
  Matrix gate, up, down;  // [width, hidden] twice, [hidden, width]
  [[nodiscard]] bool empty() const { return gate.empty(); }
};

struct MixtureWeights {
  Matrix router;                       // [experts, hidden]
  Vector bias;                         // [experts] of the choice, or empty
  std::vector<Matrix> gate, up, down;  // [experts]
  FfnWeights shared;                   // or empty
  [[nodiscard]] bool empty() const { return router.empty(); }
};

struct IndexerWeights {
  Matrix q;               // [index_heads * index_dim, q_lora]
  Matrix k;               // [index_dim, hidden]
  Matrix head;            // [index_heads, hidden]
  Vector k_norm, k_bias;  // [index_dim]; no bias: a convention override
  [[nodiscard]] bool empty() const { return q.empty(); }
};

struct LayerWeights {
  Vector attn_norm, ffn_norm;    // [hidden]
  Matrix q;                      // [heads * (nope + rope), hidden], or empty and the low-rank pair below
  Matrix q_down, q_up;           // [q_lora, hidden], [heads * (nope + rope), q_lora]
  Vector q_norm;                 // [q_lora]
  Matrix kv_down;                // [kv_lora + rope, hidden]
  Vector kv_norm;                // [kv_lora]
  std::vector<Matrix> k_absorb;  // [heads] of [kv_lora, nope]: W_UK transposed
  std::vector<Matrix> v_absorb;  // [heads] of [value, kv_lora]: W_UV
  Matrix output;                 // [hidden, heads * value]
  IndexerWeights indexer;        // empty on layers that share
  FfnWeights dense;              // or empty and a mixture
  MixtureWeights mixture;
};

struct ModelWeights {
  Matrix embedding, head;   // [vocab, hidden]
  Vector final_norm;        // [hidden]
  Vector rope_frequencies;  // [rope / 2]
  std::vector<LayerWeights> layers;
  std::vector<Buffer> copies;  // transposed halves of an unsplit kv_b, on the host
  int64_t mapped_bytes = 0, owned_bytes = 0;
};

// The checkpoint must have passed report_tensors(); its mappings must outlive the weights.
[[nodiscard]] Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Ops& ops);

}  // namespace winnow
