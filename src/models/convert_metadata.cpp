// SPDX-License-Identifier: Apache-2.0
// Keys of the model: llama.cpp's conversion/{base,deepseek,glm}.py for what is written, its loaders for what is read.
#include "models/convert_metadata.hpp"

#include <cmath>

namespace winnow {
namespace {

using gguf::Value;

constexpr uint32_t kGateSoftmax = 1, kGateSigmoid = 2;

struct ArchitectureName {
  const char *hf, *gguf;
};
constexpr ArchitectureName kArchitectures[] = {
    {"glm_moe_dsa", "glm-dsa"},
    {"deepseek_v32", "deepseek32"},
    {"deepseek_v3", "deepseek2"},
    {"glm4_moe_lite", "deepseek2"},
};

// Keys under "<architecture>.".
class Keys {
 public:
  Keys(gguf::Writer& writer, std::string prefix) : writer_(writer), prefix_(std::move(prefix) + ".") {}
  void integer(const char* key, int64_t value) { set(key, Value::of_u32(static_cast<uint32_t>(value))); }
  void number(const char* key, double value) { set(key, Value::of_f32(static_cast<float>(value))); }
  void boolean(const char* key, bool value) { set(key, Value::of_bool(value)); }
  void string(const char* key, const char* value) { set(key, Value::of_string(value)); }
  void set(const char* key, Value value) { writer_.set(prefix_ + key, std::move(value)); }

 private:
  gguf::Writer& writer_;
  std::string prefix_;
};

void set_ffn(Keys& keys, const ModelConfig& c) {
  keys.integer("feed_forward_length", c.dense_width);
  if (c.experts == 0) return;
  keys.integer("expert_feed_forward_length", c.expert_width);
  keys.integer("leading_dense_block_count", c.dense_layers);
  keys.integer("expert_count", c.experts);
  keys.integer("expert_used_count", c.experts_used);
  keys.integer("expert_shared_count", c.shared_experts);
  keys.integer("expert_group_count", c.expert_groups);
  keys.integer("expert_group_used_count", c.expert_groups_used);
  keys.number("expert_weights_scale", c.expert_scale);
  keys.boolean("expert_weights_norm", c.normalise_expert_weights);
  keys.integer("expert_gating_func", c.gate == GateKind::softmax ? kGateSoftmax : kGateSigmoid);
}

// Key and value heads are written absorbed: one latent head of kv_lora + rope.
void set_attention(Keys& keys, const ModelConfig& c) {
  keys.integer("attention.head_count", c.heads);
  keys.integer("attention.head_count_kv", 1);
  keys.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  if (c.q_lora > 0) keys.integer("attention.q_lora_rank", c.q_lora);
  keys.integer("attention.kv_lora_rank", c.kv_lora);
  keys.integer("attention.key_length", c.kv_lora + c.head_rope);
  keys.integer("attention.value_length", c.kv_lora);
  keys.integer("attention.key_length_mla", c.head_nope + c.head_rope);
  keys.integer("attention.value_length_mla", c.head_v);
}

void set_indexer(Keys& keys, const ModelConfig& c) {
  if (!c.has_indexer()) return;
  keys.integer("attention.indexer.head_count", c.index_heads);
  keys.integer("attention.indexer.key_length", c.index_dim);
  keys.integer("attention.indexer.top_k", c.index_topk);
  if (c.full_layers() == c.layers) return;
  std::vector<double> types(c.full_indexer.begin(), c.full_indexer.end());
  keys.set("attention.indexer.types", Value::of_numbers(gguf::ValueType::boolean, std::move(types)));
}

void set_rope(Keys& keys, const ModelConfig& c) {
  keys.integer("rope.dimension_count", c.head_rope);
  keys.number("rope.freq_base", c.rope_theta);
  if (!c.yarn.enabled) return;
  keys.string("rope.scaling.type", "yarn");
  keys.number("rope.scaling.factor", c.yarn.factor);
  keys.integer("rope.scaling.original_context_length", c.yarn.original_context);
  keys.number("rope.scaling.yarn_log_multiplier", 0.1 * c.yarn.mscale_all_dim);
  keys.number("rope.scaling.yarn_beta_fast", c.yarn.beta_fast);
  keys.number("rope.scaling.yarn_beta_slow", c.yarn.beta_slow);
}

// GGUF has no key for these two; a reader goes by the architecture.
Status check_sayable(const ModelConfig& c, const std::string& architecture) {
  const RopeLayout implied = architecture == "deepseek32" ? RopeLayout::half_split : RopeLayout::interleaved;
  if (c.has_indexer() && c.indexer_rope != implied) {
    return error(StatusCode::unsupported, "the indexer's rope is ",
                 c.indexer_rope == RopeLayout::half_split ? "half-split" : "interleaved", ", but readers of a ",
                 architecture, " GGUF take the other layout and no key says otherwise; run the checkpoint as it is");
  }
  if (c.yarn.enabled && std::fabs(c.yarn.attention_factor - 1.0f) > 1e-6f) {
    return error(StatusCode::unsupported, "YaRN multiplies cos and sin by ", c.yarn.attention_factor,
                 ", readers of a GGUF of this family take 1; run the checkpoint as it is");
  }
  return {};
}

}  // namespace

Result<std::string> gguf_architecture(const std::string& hf_architecture) {
  for (const ArchitectureName& a : kArchitectures) {
    if (hf_architecture == a.hf) return std::string(a.gguf);
  }
  return error(StatusCode::unsupported, "convert: model_type is ", hf_architecture,
               ", wants glm_moe_dsa, deepseek_v32, deepseek_v3 or glm4_moe_lite");
}

Status set_model_keys(gguf::Writer& writer, const ModelConfig& config, const std::string& name, int64_t nextn_layers) {
  WINNOW_TRY_ASSIGN(const std::string architecture, gguf_architecture(config.architecture));
  WINNOW_TRY(check_sayable(config, architecture));
  writer.set("general.architecture", Value::of_string(architecture));
  writer.set("general.name", Value::of_string(name));
  Keys keys(writer, architecture);
  keys.integer("context_length", config.context);
  keys.integer("embedding_length", config.hidden);
  keys.integer("block_count", config.layers + nextn_layers);
  if (nextn_layers > 0) keys.integer("nextn_predict_layers", nextn_layers);
  set_ffn(keys, config);
  set_attention(keys, config);
  set_indexer(keys, config);
  set_rope(keys, config);
  keys.integer("vocab_size", config.vocab);
  return {};
}

}  // namespace winnow
