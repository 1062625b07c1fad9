// SPDX-License-Identifier: Apache-2.0
// ModelConfig from a Hugging Face config.json: glm_moe_dsa, deepseek_v32, deepseek_v3, glm4_moe_lite.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/json.hpp"
#include "formats/quoted.hpp"
#include "models/config_sources.hpp"

namespace winnow {
namespace {

using Json = nlohmann::json;

// Keys of one object. The first failure stays; later reads then give their defaults. null counts as absent.
class Keys {
 public:
  explicit Keys(const Json& object) : object_(object) {}

  [[nodiscard]] const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  int64_t integer(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return fail(StatusCode::not_found, key, "an integer", "nothing");
    if (!value->is_number_integer()) return fail(StatusCode::corrupt_data, key, "an integer", value->type_name());
    return value->get<int64_t>();
  }
  int64_t integer(const char* key, int64_t absent) { return find(key) == nullptr ? absent : integer(key); }

  double number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return static_cast<double>(fail(StatusCode::not_found, key, "a number", "nothing"));
    if (!value->is_number()) {
      return static_cast<double>(fail(StatusCode::corrupt_data, key, "a number", value->type_name()));
    }
    return value->get<double>();
  }
  double number(const char* key, double absent) { return find(key) == nullptr ? absent : number(key); }

  bool boolean(const char* key, bool absent) {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) return fail(StatusCode::corrupt_data, key, "true or false", value->type_name()) != 0;
    return value->get<bool>();
  }
  std::string string(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) fail(StatusCode::corrupt_data, key, "a string", value->type_name());
    return value->is_string() ? value->get<std::string>() : std::string();
  }

  int64_t fail(StatusCode code, std::string_view key, std::string_view wanted, std::string_view found) {
    return fail(error(code, "config.json: ", key, " wants ", wanted, ", found ", found));
  }
  int64_t fail(Status failure) {
    if (status_.ok()) status_ = std::move(failure);
    return 0;
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Json& object_;
  Status status_;
};

double mscale_of(double factor, double mscale) { return 0.1 * mscale * std::log(factor) + 1.0; }

// transformers 5 writes rope_parameters; published checkpoints have rope_theta and rope_scaling.
Status read_rope(const Json& config, ModelConfig& c) {
  Keys top(config);
  c.rope_theta = top.number("rope_theta", c.rope_theta);
  const Json* object = top.find("rope_parameters");
  if (object == nullptr) object = top.find("rope_scaling");
  WINNOW_TRY(top.status());
  if (object == nullptr) return Status();
  if (!object->is_object())
    return error(StatusCode::corrupt_data, "config.json: the rope parameters are not an object");
  Keys rope(*object);
  c.rope_theta = rope.number("rope_theta", c.rope_theta);
  std::string type = rope.string("rope_type");
  if (type.empty()) type = rope.string("type");
  WINNOW_TRY(rope.status());
  if (type.empty() || type == "default") return Status();
  if (type != "yarn") {
    return error(StatusCode::unsupported, "config.json: rope type ", quoted(type), "; this build has default and yarn");
  }
  c.yarn.enabled = true;
  c.yarn.factor = static_cast<float>(rope.number("factor"));
  c.yarn.original_context = rope.integer("original_max_position_embeddings");
  c.yarn.beta_fast = static_cast<float>(rope.number("beta_fast", 32));
  c.yarn.beta_slow = static_cast<float>(rope.number("beta_slow", 1));
  c.yarn.mscale_all_dim = static_cast<float>(rope.number("mscale_all_dim", 0));
  const double mscale = rope.number("mscale", 0);
  const double both = mscale != 0 && c.yarn.mscale_all_dim != 0
                          ? mscale_of(c.yarn.factor, mscale) / mscale_of(c.yarn.factor, c.yarn.mscale_all_dim)
                          : mscale_of(c.yarn.factor, 1);
  c.yarn.attention_factor = static_cast<float>(rope.number("attention_factor", both));
  return rope.status();
}

// indexer_types, else index_topk_pattern, else the formula; all three appear in GLM configurations.
void read_index_share(Keys& keys, ModelConfig& c) {
  if (const Json* types = keys.find("indexer_types")) {
    if (!types->is_array()) {
      keys.fail(StatusCode::corrupt_data, "indexer_types", "an array", types->type_name());
      return;
    }
    for (const Json& type : *types) {
      if (type != "full" && type != "shared") {
        keys.fail(StatusCode::corrupt_data, "indexer_types", "\"full\" or \"shared\"",
                  type.is_string() ? quoted(type.get_ref<const std::string&>()) : std::string(type.type_name()));
        return;
      }
      c.full_indexer.push_back(type == "full");
    }
    return;
  }
  const std::string pattern = keys.string("index_topk_pattern");
  if (!pattern.empty()) {
    for (char letter : pattern) {
      if (letter != 'F' && letter != 'S') {
        keys.fail(StatusCode::corrupt_data, "index_topk_pattern", "letters F and S", quoted(pattern));
        return;
      }
      c.full_indexer.push_back(letter == 'F');
    }
    return;
  }
  const int64_t frequency = keys.integer("index_topk_freq", kDefaultShareFrequency);
  const int64_t offset = keys.integer("index_skip_topk_offset", keys.integer("skip_topk_offset", kDefaultShareOffset));
  if (Status wrong = check_index_share(frequency, offset); !wrong.ok()) {
    keys.fail(std::move(wrong).in("config.json"));
    return;
  }
  c.full_indexer = index_share_formula(c.layers, frequency, offset);
}

void read_indexer(Keys& keys, ModelConfig& c) {
  const bool glm = c.architecture == "glm_moe_dsa";
  if (!glm && c.architecture != "deepseek_v32") return;
  c.index_heads = keys.integer("index_n_heads");
  c.index_dim = keys.integer("index_head_dim");
  c.index_topk = keys.integer("index_topk");
  // 0 heads would quietly make the model a dense one.
  if (c.index_heads < 1 && keys.status().ok()) {
    keys.fail(StatusCode::corrupt_data, "index_n_heads", "at least 1", concat(c.index_heads));
  }
  // Absent flag: half-split for DeepSeek-V3.2, whose published configuration lacks it; interleaved for every GLM.
  c.indexer_rope = keys.boolean("indexer_rope_interleave", glm) ? RopeLayout::interleaved : RopeLayout::half_split;
  read_index_share(keys, c);
}

void read_attention(Keys& keys, ModelConfig& c) {
  c.heads = keys.integer("num_attention_heads");
  c.q_lora = keys.integer("q_lora_rank", 0);
  c.kv_lora = keys.integer("kv_lora_rank");
  c.head_nope = keys.integer("qk_nope_head_dim");
  c.head_rope = keys.integer("qk_rope_head_dim");
  c.head_v = keys.integer("v_head_dim");
  c.norm_eps = static_cast<float>(keys.number("rms_norm_eps"));
  if (keys.boolean("attention_bias", false)) {
    keys.fail(error(StatusCode::unsupported, "config.json: attention_bias is true; no published model has biases"));
  }
}

// Dense layers lead: first_k_dense_replace, or the same as a list of layer types.
int64_t read_dense_layers(Keys& keys, const ModelConfig& c) {
  const Json* types = keys.find("mlp_layer_types");
  if (types == nullptr) return keys.integer("first_k_dense_replace", 0);
  if (!types->is_array()) return keys.fail(StatusCode::corrupt_data, "mlp_layer_types", "an array", types->type_name());
  int64_t dense = 0;
  while (dense < static_cast<int64_t>(types->size()) && (*types)[dense] == "dense") ++dense;
  for (std::size_t i = dense; i < types->size(); ++i) {
    if ((*types)[i] != "sparse") keys.fail(StatusCode::unsupported, "mlp_layer_types", "dense layers first", "others");
  }
  if (static_cast<int64_t>(types->size()) < c.layers) {
    keys.fail(StatusCode::corrupt_data, "mlp_layer_types", concat(c.layers, " entries"), concat(types->size()));
  }
  return dense;
}

void read_ffn(Keys& keys, ModelConfig& c) {
  c.experts = keys.integer("n_routed_experts", 0);
  c.dense_width = keys.integer("intermediate_size", 0);
  c.dense_layers = c.experts > 0 ? read_dense_layers(keys, c) : c.layers;
  if (c.experts == 0) return;
  c.experts_used = keys.integer("num_experts_per_tok");
  c.shared_experts = keys.integer("n_shared_experts", 0);
  c.expert_width = keys.integer("moe_intermediate_size");
  c.expert_groups = keys.integer("n_group", 1);
  c.expert_groups_used = keys.integer("topk_group", 1);
  c.expert_scale = static_cast<float>(keys.number("routed_scaling_factor", 1));
  c.normalise_expert_weights = keys.boolean("norm_topk_prob", true);
  const std::string gate = keys.string("scoring_func");  // GLM-4.7-Flash has none and is sigmoid
  if (!gate.empty() && gate != "sigmoid" && gate != "softmax") {
    keys.fail(StatusCode::unsupported, "scoring_func", "sigmoid or softmax", quoted(gate));
  }
  c.gate = gate == "softmax" ? GateKind::softmax : GateKind::sigmoid;
}

}  // namespace

Result<ModelConfig> read_hf_config(const std::string& config_json) {
  if (config_json.empty()) {
    return error(StatusCode::not_found, "there is no config.json beside the safetensors; give the checkpoint's folder");
  }
  Result<Json> parsed = parse_json(config_json);
  if (!parsed.ok()) return std::move(parsed).status().in("config.json");
  const Json config = std::move(parsed).value();
  if (!config.is_object()) return error(StatusCode::corrupt_data, "config.json is not a JSON object");
  Keys keys(config);
  ModelConfig c;
  c.architecture = keys.string("model_type");
  if (c.architecture != "glm_moe_dsa" && c.architecture != "deepseek_v32" && c.architecture != "deepseek_v3" &&
      c.architecture != "glm4_moe_lite") {
    return error(StatusCode::unsupported, "config.json: model_type ", quoted(c.architecture),
                 " is not one of glm_moe_dsa, deepseek_v32, deepseek_v3, glm4_moe_lite");
  }
  c.name = keys.string("_name_or_path");
  c.vocab = keys.integer("vocab_size");
  c.hidden = keys.integer("hidden_size");
  c.layers = keys.integer("num_hidden_layers");
  c.nextn_layers = keys.integer("num_nextn_predict_layers", 0);
  c.context = keys.integer("max_position_embeddings");
  if (keys.status().ok() && (c.layers < 1 || c.layers > 4096)) {
    return error(StatusCode::corrupt_data, "config.json: num_hidden_layers is ", c.layers, ", wants 1 to 4096");
  }
  read_attention(keys, c);
  read_ffn(keys, c);
  read_indexer(keys, c);
  WINNOW_TRY(keys.status());
  WINNOW_TRY(read_rope(config, c));
  return c;
}

}  // namespace winnow
