// SPDX-License-Identifier: Apache-2.0
// ModelConfig from GGUF metadata: glm-dsa, deepseek32, deepseek2. Keys as llama.cpp's converter writes them; where
// files in the wild disagree or keep silent, each rule says so.
#include <cmath>

#include "formats/quoted.hpp"
#include "models/config_sources.hpp"

namespace winnow {
namespace {

// Keys of one architecture. The first failure stays; later reads then give their defaults.
class Keys {
 public:
  Keys(const gguf::Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  [[nodiscard]] bool has(std::string_view key) const { return metadata_.find(full(key)) != nullptr; }

  // Some writers store one number per layer where others store a scalar: the first counts.
  int64_t integer(std::string_view key) {
    const gguf::Value* value = metadata_.find(full(key));
    if (value != nullptr && value->is_array()) {
      Result<std::vector<int64_t>> list = metadata_.integers(full(key));
      if (list.ok() && list->empty()) return fail(error(StatusCode::corrupt_data, full(key), " is an empty array"));
      return list.ok() ? list->front() : fail(list.status());
    }
    Result<int64_t> result = metadata_.integer(full(key));
    return result.ok() ? *result : fail(result.status());
  }
  int64_t integer(std::string_view key, int64_t absent) { return has(key) ? integer(key) : absent; }

  double number(std::string_view key) {
    Result<double> result = metadata_.number(full(key));
    return result.ok() ? *result : static_cast<double>(fail(result.status()));
  }
  double number(std::string_view key, double absent) { return has(key) ? number(key) : absent; }

  bool boolean(std::string_view key, bool absent) {
    if (!has(key)) return absent;
    Result<bool> result = metadata_.boolean(full(key));
    return result.ok() ? *result : fail(result.status()) != 0;
  }
  std::string string(std::string_view key) {
    if (!has(key)) return {};
    Result<std::string> result = metadata_.string(full(key));
    if (!result.ok()) fail(result.status());
    return result.ok() ? *result : std::string();
  }
  std::vector<int64_t> integers(std::string_view key) {
    Result<std::vector<int64_t>> result = metadata_.integers(full(key));
    if (!result.ok()) fail(result.status());
    return result.ok() ? *result : std::vector<int64_t>();
  }

  int64_t fail(Status failure) {
    if (status_.ok()) status_ = std::move(failure);
    return 0;
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  const gguf::Metadata& metadata_;
  std::string prefix_;
  Status status_;
};

constexpr int64_t kGateSoftmax = 1, kGateSigmoid = 2;

// Absent key: glm-dsa means sigmoid. deepseek2 means softmax (V2), except GLM-4.7-Flash, whose early files lack the key
// and are told by their depth and vocabulary. deepseek32 must have it.
GateKind read_gate(Keys& keys, const ModelConfig& c, int64_t blocks) {
  if (!keys.has("expert_gating_func") && c.architecture != "deepseek32") {
    const bool flash = (blocks == 47 || blocks == 48) && c.vocab == 154880;
    return c.architecture == "glm-dsa" || flash ? GateKind::sigmoid : GateKind::softmax;
  }
  const int64_t id = keys.integer("expert_gating_func");
  if (id != kGateSoftmax && id != kGateSigmoid) {
    keys.fail(error(StatusCode::unsupported, keys.full("expert_gating_func"), " is ", id,
                    "; this build has 1 (softmax) and 2 (sigmoid)"));
  }
  return id == kGateSoftmax ? GateKind::softmax : GateKind::sigmoid;
}

void read_yarn(Keys& keys, ModelConfig& c) {
  const std::string type = keys.string("rope.scaling.type");
  if (type.empty() || type == "none") return;
  if (type != "yarn") {
    keys.fail(
        error(StatusCode::unsupported, keys.full("rope.scaling.type"), " is ", quoted(type), "; this build has yarn"));
    return;
  }
  c.yarn.enabled = true;
  c.yarn.factor = static_cast<float>(keys.number("rope.scaling.factor"));
  c.yarn.original_context = keys.integer("rope.scaling.original_context_length");
  c.yarn.beta_fast = static_cast<float>(keys.number("rope.scaling.yarn_beta_fast", 32));
  c.yarn.beta_slow = static_cast<float>(keys.number("rope.scaling.yarn_beta_slow", 1));
  // The converter stores 0.1 * mscale_all_dim.
  c.yarn.mscale_all_dim = static_cast<float>(keys.number("rope.scaling.yarn_log_multiplier", 0) * 10.0);
}

// Hostile numbers must not overflow; what comes out instead is outside every range that is checked later.
int64_t difference(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? INT64_MIN : result;
}

std::string indexer_tensor(int64_t layer) { return concat("blk.", layer, ".indexer.attn_k.weight"); }

// Which layers run their own indexer, in order of trust: the list, then frequency and offset (one fork writes them),
// then indexer tensors on a strict subset of layers that holds layer 0 (presence everywhere says nothing: converters
// broadcast them), then the context length, as llama.cpp tells GLM-5.2 from 5.
std::vector<bool> read_index_share(Keys& keys, const Checkpoint& checkpoint, const ModelConfig& c) {
  const auto layers = static_cast<std::size_t>(c.layers);
  if (keys.has("attention.indexer.types")) {
    const std::vector<int64_t> types = keys.integers("attention.indexer.types");
    std::vector<bool> full(types.begin(), types.end());
    if (full.size() == layers + static_cast<std::size_t>(c.nextn_layers)) full.resize(layers);  // MTP counted in
    return full;
  }
  if (keys.has("attention.indexer.top_k_frequency")) {
    const int64_t frequency = keys.integer("attention.indexer.top_k_frequency");
    const int64_t offset = keys.integer("attention.indexer.skip_top_k_offset", kDefaultShareOffset);
    if (Status wrong = check_index_share(frequency, offset); !wrong.ok()) {
      keys.fail(std::move(wrong).in(keys.full("attention.indexer.top_k_frequency")));
      return {};
    }
    return index_share_formula(c.layers, frequency, offset);
  }
  std::vector<bool> present(layers);
  int64_t count = 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    present[i] = checkpoint.find(indexer_tensor(i)) != nullptr;
    count += present[i] ? 1 : 0;
  }
  if (count > 0 && count < c.layers && present[0]) return present;
  constexpr int64_t kGlm52Context = 1048576;
  const bool shares = c.architecture == "glm-dsa" && c.context >= kGlm52Context;
  return shares ? index_share_formula(c.layers, 4, 3) : std::vector<bool>(layers, true);
}

void read_indexer(Keys& keys, const Checkpoint& checkpoint, ModelConfig& c) {
  if (c.architecture == "deepseek2") return;
  c.index_heads = keys.integer("attention.indexer.head_count");
  c.index_dim = keys.integer("attention.indexer.key_length");
  c.index_topk = keys.integer("attention.indexer.top_k");
  // 0 heads would quietly make the model a dense one.
  if (c.index_heads < 1 && keys.status().ok()) {
    keys.fail(error(StatusCode::corrupt_data, keys.full("attention.indexer.head_count"), " is ", c.index_heads,
                    ", wants at least 1"));
  }
  // There is no key for the layout: it goes with the architecture.
  c.indexer_rope = c.architecture == "deepseek32" ? RopeLayout::half_split : RopeLayout::interleaved;
  if (keys.status().ok()) c.full_indexer = read_index_share(keys, checkpoint, c);
}

void read_attention(Keys& keys, ModelConfig& c) {
  c.heads = keys.integer("attention.head_count");
  c.q_lora = keys.integer("attention.q_lora_rank", 0);
  c.kv_lora = keys.integer("attention.kv_lora_rank");
  c.head_rope = keys.integer("rope.dimension_count");
  // Files from before the split of kv_b have per-head widths in key_length and value_length, and no *_mla keys.
  const bool split = keys.has("attention.key_length_mla");
  c.head_nope = difference(keys.integer(split ? "attention.key_length_mla" : "attention.key_length"), c.head_rope);
  c.head_v = keys.integer(split ? "attention.value_length_mla" : "attention.value_length");
  c.norm_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon"));
  c.rope_theta = keys.number("rope.freq_base", 10000);
}

void read_ffn(Keys& keys, ModelConfig& c, int64_t blocks) {
  c.experts = keys.integer("expert_count", 0);
  c.dense_layers = c.experts > 0 ? keys.integer("leading_dense_block_count", 0) : c.layers;
  c.dense_width = keys.integer("feed_forward_length", 0);
  if (c.experts == 0) return;
  c.experts_used = keys.integer("expert_used_count");
  c.shared_experts = keys.integer("expert_shared_count", 0);
  c.expert_width = keys.integer("expert_feed_forward_length");
  c.expert_groups = std::max<int64_t>(keys.integer("expert_group_count", 1), 1);
  c.expert_groups_used = std::max<int64_t>(keys.integer("expert_group_used_count", 1), 1);
  c.expert_scale = static_cast<float>(keys.number("expert_weights_scale", 1));
  c.gate = read_gate(keys, c, blocks);
  c.normalise_expert_weights = keys.boolean("expert_weights_norm", c.gate == GateKind::sigmoid);
}

int64_t read_vocab(Keys& keys, const Checkpoint& checkpoint) {
  if (keys.has("vocab_size")) return keys.integer("vocab_size");
  const std::vector<std::string>* tokens = checkpoint.metadata.strings("tokenizer.ggml.tokens");
  if (tokens != nullptr) return static_cast<int64_t>(tokens->size());
  const TensorInfo* table = checkpoint.find("token_embd.weight");
  return table != nullptr ? table->dims[1] : keys.integer("vocab_size");
}

}  // namespace

Result<ModelConfig> read_gguf_config(const Checkpoint& checkpoint) {
  ModelConfig c;
  WINNOW_TRY_ASSIGN(c.architecture, checkpoint.metadata.string("general.architecture"));
  if (c.architecture != "glm-dsa" && c.architecture != "deepseek32" && c.architecture != "deepseek2") {
    return error(StatusCode::unsupported, "architecture ", quoted(c.architecture),
                 " is not one of glm-dsa, deepseek32, deepseek2");
  }
  if (checkpoint.metadata.find("general.name") != nullptr) {
    WINNOW_TRY_ASSIGN(c.name, checkpoint.metadata.string("general.name"));
  }
  Keys keys(checkpoint.metadata, c.architecture);
  const int64_t blocks = keys.integer("block_count");
  c.nextn_layers = keys.integer("nextn_predict_layers", 0);
  c.layers = difference(blocks, c.nextn_layers);
  c.hidden = keys.integer("embedding_length");
  c.context = keys.integer("context_length");
  c.vocab = read_vocab(keys, checkpoint);
  read_attention(keys, c);
  read_ffn(keys, c, blocks);
  read_yarn(keys, c);
  // Layer counts size vectors below: absurd ones must not.
  if (c.layers < 1 || c.layers > 4096 || c.nextn_layers < 0 || c.nextn_layers > 256) {
    WINNOW_TRY(keys.status());
    return error(StatusCode::corrupt_data, c.architecture, ".block_count is ", blocks, " with ", c.nextn_layers,
                 " MTP layers, wants 1 to 4096 layers besides them");
  }
  read_indexer(keys, checkpoint, c);
  WINNOW_TRY(keys.status());
  return c;
}

}  // namespace winnow
