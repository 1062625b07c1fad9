// SPDX-License-Identifier: Apache-2.0
// ModelConfig: everything the graph of the MLA family needs to know, from GGUF metadata or from config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "formats/checkpoint.hpp"
#include "ops/rope_layout.hpp"

namespace winnow {

enum class GateKind { softmax, sigmoid };

struct YarnScaling {  // reference: YaRN (arXiv 2309.00071) as DeepSeek applies it
  bool enabled = false;
  float factor = 1, beta_fast = 32, beta_slow = 1;
  float mscale_all_dim = 0;    // softmax scale is multiplied by (0.1 * mscale_all_dim * ln factor + 1)^2
  float attention_factor = 1;  // on cos and sin
  int64_t original_context = 0;
};

struct ModelConfig {
  std::string architecture;  // as the file says: glm-dsa, deepseek32, deepseek2, glm_moe_dsa, ...
  std::string name;
  int64_t vocab = 0, hidden = 0, layers = 0, nextn_layers = 0;  // layers without the MTP layers
  int64_t heads = 0, q_lora = 0, kv_lora = 0;                   // q_lora 0: one plain q projection
  int64_t head_nope = 0, head_rope = 0, head_v = 0;
  int64_t dense_layers = 0, dense_width = 0;
  int64_t experts = 0, experts_used = 0, shared_experts = 0, expert_width = 0;
  int64_t expert_groups = 1, expert_groups_used = 1;
  float expert_scale = 1;
  bool normalise_expert_weights = true;
  GateKind gate = GateKind::sigmoid;
  float norm_eps = 1e-6f;
  float indexer_norm_eps = 1e-6f;
  int64_t index_heads = 0, index_dim = 0, index_topk = 0;  // index_heads 0: no indexer, dense attention
  std::vector<bool> full_indexer;  // [layers] true: runs its own indexer; false: reuses the last full layer's list
  RopeLayout indexer_rope = RopeLayout::interleaved;
  double rope_theta = 10000;
  YarnScaling yarn;
  int64_t context = 0;  // trained context
  [[nodiscard]] bool has_indexer() const { return index_heads > 0; }
  [[nodiscard]] int64_t full_layers() const;
  [[nodiscard]] float softmax_scale() const;
};

// unsupported for an unknown architecture (the known ones are listed); not_found or corrupt_data naming the key.
[[nodiscard]] Result<ModelConfig> read_config(const Checkpoint& checkpoint);

}  // namespace winnow
