// SPDX-License-Identifier: Apache-2.0
// Configurations of published models, and of files that disagree about how to say them.
#include "models/config.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "models/config_sources.hpp"
#include "models/rope_frequencies.hpp"

namespace winnow {
namespace {

gguf::Value integer(int64_t v) { return {.type = gguf::ValueType::u32, .data = static_cast<uint64_t>(v)}; }
gguf::Value number(double v) { return {.type = gguf::ValueType::f32, .data = v}; }
gguf::Value text(std::string v) { return {.type = gguf::ValueType::string, .data = std::move(v)}; }
gguf::Value list(gguf::ValueType type, std::vector<double> v) {
  gguf::Value value{.type = gguf::ValueType::array};
  value.element_type = type;
  value.numbers = std::move(v);
  return value;
}

// GLM-5.2's metadata, without the sharing list.
Checkpoint glm52() {
  Checkpoint c;
  c.path = "glm.gguf";
  const auto set = [&](const char* key, gguf::Value v) { c.metadata.set(std::string("glm-dsa.") + key, std::move(v)); };
  c.metadata.set("general.architecture", text("glm-dsa"));
  set("context_length", integer(1048576));
  set("embedding_length", integer(6144));
  set("block_count", integer(79));
  set("nextn_predict_layers", integer(1));
  set("feed_forward_length", integer(12288));
  set("expert_feed_forward_length", integer(2048));
  set("leading_dense_block_count", integer(3));
  set("expert_count", integer(256));
  set("expert_used_count", integer(8));
  set("expert_shared_count", integer(1));
  set("expert_weights_scale", number(2.5));
  set("attention.head_count", integer(64));
  set("attention.q_lora_rank", integer(2048));
  set("attention.kv_lora_rank", integer(512));
  set("attention.key_length", integer(576));
  set("attention.value_length", integer(512));
  set("attention.key_length_mla", integer(256));
  set("attention.value_length_mla", integer(256));
  set("attention.layer_norm_rms_epsilon", number(1e-5));
  set("attention.indexer.head_count", integer(32));
  set("attention.indexer.key_length", integer(128));
  set("attention.indexer.top_k", integer(2048));
  set("rope.dimension_count", integer(64));
  set("rope.freq_base", number(8e6));
  set("vocab_size", integer(154880));
  return c;
}

std::vector<int64_t> full_layers_of(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (std::size_t i = 0; i < config.full_indexer.size(); ++i) {
    if (config.full_indexer[i]) layers.push_back(static_cast<int64_t>(i));
  }
  return layers;
}

const std::vector<int64_t> kGlm52Full = {0,  1,  2,  6,  10, 14, 18, 22, 26, 30, 34,
                                         38, 42, 46, 50, 54, 58, 62, 66, 70, 74};

TEST(Config, EmptyCheckpointNamesTheKey) {
  Checkpoint c;
  c.path = "empty.gguf";
  const Result<ModelConfig> config = read_config(c);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(std::string::npos, config.status().message().find("general.architecture"));
}

TEST(Config, Glm52FromGguf) {
  const Result<ModelConfig> config = read_config(glm52());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(78, config->layers);
  EXPECT_EQ(192, config->head_nope);
  EXPECT_EQ(64, config->head_rope);
  EXPECT_EQ(256, config->head_v);
  EXPECT_EQ(RopeLayout::interleaved, config->indexer_rope);
  EXPECT_EQ(GateKind::sigmoid, config->gate) << "an absent key means sigmoid here";
  EXPECT_TRUE(config->normalise_expert_weights);
  EXPECT_FLOAT_EQ(0.0625f, config->softmax_scale());
  EXPECT_FLOAT_EQ(1e-5f, config->norm_eps);
  EXPECT_FLOAT_EQ(1e-6f, config->indexer_norm_eps);
}

// Without metadata the context length tells GLM-5.2 (shares) from GLM-5 (does not).
TEST(IndexShare, ContextLengthDecidesWhenNothingElseDoes) {
  EXPECT_EQ(kGlm52Full, full_layers_of(*read_config(glm52())));
  Checkpoint glm5 = glm52();
  glm5.metadata.set("glm-dsa.context_length", integer(202752));
  EXPECT_EQ(78, read_config(glm5)->full_layers());
}

TEST(IndexShare, FormulaOfTheReference) {
  std::vector<bool> full = index_share_formula(79, 4, 3);
  EXPECT_TRUE(full[78]) << "the MTP layer would run its own";
  full.resize(78);
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < 78; ++i) {
    if (full[i]) layers.push_back(i);
  }
  EXPECT_EQ(kGlm52Full, layers);
  EXPECT_EQ(std::vector<bool>(10, true), index_share_formula(10, kDefaultShareFrequency, kDefaultShareOffset));
}

TEST(IndexShare, TheListWinsWhateverItsTypeAndMayCountMtpIn) {
  for (gguf::ValueType type : {gguf::ValueType::boolean, gguf::ValueType::u8, gguf::ValueType::i8, gguf::ValueType::u32,
                               gguf::ValueType::i32}) {
    for (std::size_t length : {78, 79}) {
      Checkpoint c = glm52();
      std::vector<double> types(length, 0);
      types[0] = types[5] = 1;
      c.metadata.set("glm-dsa.attention.indexer.types", list(type, types));
      const Result<ModelConfig> config = read_config(c);
      ASSERT_TRUE(config.ok()) << config.status().message();
      EXPECT_EQ((std::vector<int64_t>{0, 5}), full_layers_of(*config));
    }
  }
}

TEST(IndexShare, ThenTheScalarKeys) {
  Checkpoint c = glm52();
  c.metadata.set("glm-dsa.attention.indexer.top_k_frequency", integer(2));
  c.metadata.set("glm-dsa.attention.indexer.skip_top_k_offset", integer(1));
  const std::vector<int64_t> layers = full_layers_of(*read_config(c));
  EXPECT_EQ(39u, layers.size());
  EXPECT_EQ(2, layers[1]);
  c.metadata.set("glm-dsa.attention.indexer.top_k_frequency", integer(0));
  EXPECT_EQ(StatusCode::corrupt_data, read_config(c).status().code());
}

void add_tensor(Checkpoint& c, const std::string& name) {
  c.by_name[name] = c.tensors.size();
  c.tensors.push_back({.name = name});
}

TEST(IndexShare, ThenIndexerTensorsOnAStrictSubsetWithLayer0) {
  Checkpoint c = glm52();
  add_tensor(c, "blk.0.indexer.attn_k.weight");
  add_tensor(c, "blk.9.indexer.attn_k.weight");
  EXPECT_EQ((std::vector<int64_t>{0, 9}), full_layers_of(*read_config(c)));

  Checkpoint everywhere = glm52();
  for (int i = 0; i < 79; ++i) add_tensor(everywhere, concat("blk.", i, ".indexer.attn_k.weight"));
  EXPECT_EQ(kGlm52Full, full_layers_of(*read_config(everywhere))) << "converters broadcast them: no signal";
}

TEST(IndexShare, LayerZeroMustNotShare) {
  Checkpoint c = glm52();
  c.metadata.set("glm-dsa.attention.indexer.types", list(gguf::ValueType::boolean, std::vector<double>(78, 0)));
  EXPECT_EQ(StatusCode::corrupt_data, read_config(c).status().code());
}

TEST(Config, PerLayerArraysInPlaceOfScalars) {
  Checkpoint c = glm52();
  c.metadata.set("glm-dsa.feed_forward_length", list(gguf::ValueType::u32, std::vector<double>(79, 12288)));
  EXPECT_EQ(12288, read_config(c)->dense_width);
  c.metadata.set("glm-dsa.feed_forward_length", list(gguf::ValueType::u32, {}));
  EXPECT_EQ(StatusCode::corrupt_data, read_config(c).status().code());
}

TEST(Config, AbsurdNumbersAreNamed) {
  const std::pair<const char*, int64_t> cases[] = {
      {"block_count", 4000000000},
      {"embedding_length", 0},
      {"attention.head_count", 1 << 20},
      {"expert_used_count", 257},
      {"rope.dimension_count", 63},
      {"leading_dense_block_count", 79},
      {"nextn_predict_layers", 80},
      {"context_length", 0},
      {"vocab_size", 1 << 30},
      {"expert_group_count", 7},
      {"attention.kv_lora_rank", 0},
      {"expert_gating_func", 3},
      {"attention.indexer.key_length", 32},
      {"attention.indexer.top_k", 0},
      {"expert_count", 1000000},
  };
  for (const auto& [key, value] : cases) {
    Checkpoint c = glm52();
    c.metadata.set(std::string("glm-dsa.") + key, integer(value));
    const Result<ModelConfig> config = read_config(c);
    ASSERT_FALSE(config.ok()) << key;
    EXPECT_TRUE(config.status().message().starts_with("glm.gguf: ")) << config.status().message();
  }
}

TEST(Config, NumbersThatWouldOverflowOrPoison) {
  const auto refused = [](const std::vector<std::pair<const char*, gguf::Value>>& keys) {
    Checkpoint c = glm52();
    for (const auto& [key, value] : keys) c.metadata.set(std::string("glm-dsa.") + key, value);
    return !read_config(c).ok();
  };
  const gguf::Value least{.type = gguf::ValueType::i64, .data = INT64_MIN};
  const gguf::Value most{.type = gguf::ValueType::i64, .data = INT64_MAX};
  EXPECT_TRUE(refused({{"block_count", least}, {"nextn_predict_layers", most}}));
  EXPECT_TRUE(refused({{"attention.key_length_mla", least}}));
  for (const gguf::Value& offset : {least, most}) {
    EXPECT_TRUE(
        refused({{"attention.indexer.top_k_frequency", integer(2)}, {"attention.indexer.skip_top_k_offset", offset}}));
  }
  EXPECT_TRUE(refused({{"attention.indexer.head_count", integer(0)}}));
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base", "expert_weights_scale"}) {
      EXPECT_TRUE(refused({{key, number(bad)}})) << key << " " << bad;
    }
    for (const char* key : {"factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier"}) {
      std::vector<std::pair<const char*, gguf::Value>> yarn = {{"rope.scaling.type", text("yarn")},
                                                               {"rope.scaling.factor", number(4)},
                                                               {"rope.scaling.original_context_length", integer(4096)}};
      EXPECT_FALSE(refused(yarn));
      const std::string full = std::string("rope.scaling.") + key;
      yarn.emplace_back(full.c_str(), number(bad));
      EXPECT_TRUE(refused(yarn)) << key << " " << bad;
    }
  }
}

TEST(Config, UnknownArchitectureListsTheKnown) {
  Checkpoint c = glm52();
  c.metadata.set("general.architecture", text("llama"));
  const Status status = read_config(c).status();
  EXPECT_EQ(StatusCode::unsupported, status.code());
  EXPECT_NE(std::string::npos, status.message().find("deepseek32"));
}

Checkpoint deepseek2(int64_t blocks, int64_t vocab) {
  Checkpoint c;
  c.metadata.set("general.architecture", text("deepseek2"));
  const Checkpoint base = glm52();
  for (const auto& [key, value] : base.metadata.values()) {
    if (key.starts_with("glm-dsa.") && key.find("indexer") == std::string::npos) {
      c.metadata.set("deepseek2." + key.substr(8), value);
    }
  }
  c.metadata.set("deepseek2.block_count", integer(blocks));
  c.metadata.set("deepseek2.vocab_size", integer(vocab));
  return c;
}

TEST(Config, Deepseek2GateWithoutItsKey) {
  EXPECT_EQ(GateKind::softmax, read_config(deepseek2(27, 102400))->gate) << "DeepSeek-V2-Lite";
  EXPECT_EQ(GateKind::sigmoid, read_config(deepseek2(48, 154880))->gate) << "GLM-4.7-Flash";
  EXPECT_FALSE(read_config(deepseek2(48, 154880))->has_indexer());
}

TEST(Config, Deepseek2BeforeTheSplitOfKvB) {
  Checkpoint c;
  c.metadata.set("general.architecture", text("deepseek2"));
  const Checkpoint base = deepseek2(27, 102400);
  for (const auto& [key, value] : base.metadata.values()) {
    if (key.find("_mla") == std::string::npos) c.metadata.set(key, value);
  }
  c.metadata.set("deepseek2.attention.key_length", integer(192));
  c.metadata.set("deepseek2.attention.value_length", integer(128));
  const Result<ModelConfig> config = read_config(c);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(128, config->head_nope);
  EXPECT_EQ(128, config->head_v);
}

constexpr const char* kDeepseekV32 = R"({
  "model_type": "deepseek_v32", "hidden_size": 7168, "num_hidden_layers": 61, "num_nextn_predict_layers": 1,
  "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
  "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
  "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5, "index_n_heads": 64,
  "index_head_dim": 128, "index_topk": 2048, "rope_theta": 10000, "max_position_embeddings": 163840,
  "rms_norm_eps": 1e-06, "vocab_size": 129280, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
  "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})";

Checkpoint from_json(std::string json) {
  Checkpoint c;
  c.format = ContainerFormat::safetensors;
  c.path = "checkpoint";
  c.config_json = std::move(json);
  return c;
}

std::string with(std::string json, const std::string& from, const std::string& to) {
  const std::size_t at = json.find(from);
  EXPECT_NE(std::string::npos, at) << from;
  return json.replace(at, from.size(), to);
}

TEST(HfConfig, DeepseekV32) {
  const Result<ModelConfig> config = read_config(from_json(kDeepseekV32));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(RopeLayout::half_split, config->indexer_rope) << "the flag is absent";
  EXPECT_EQ(61, config->full_layers());
  EXPECT_EQ(8, config->expert_groups);
  EXPECT_EQ(4, config->expert_groups_used);
  EXPECT_NEAR(0.1352337789, config->softmax_scale(), 1e-8);
  EXPECT_FLOAT_EQ(1.0f, config->yarn.attention_factor);
}

TEST(Rope, YarnFrequenciesOfDeepseekV32) {
  const std::vector<float> f = rope_frequencies(*read_config(from_json(kDeepseekV32)));
  const std::pair<int, double> anchors[] = {{0, 1.0},           {9, 0.07498942}, {10, 0.05623413},
                                            {11, 0.03900693},   {16, 0.0055},    {22, 1.7782794e-4},
                                            {23, 3.3338036e-5}, {24, 2.5e-5},    {31, 3.3338034e-6}};
  ASSERT_EQ(32u, f.size());
  for (const auto& [j, wanted] : anchors) EXPECT_NEAR(wanted, f[j], 2e-6 * wanted) << "pair " << j;
}

TEST(Rope, WithoutYarnPowersOfTheta) {
  const std::vector<float> f = rope_frequencies(*read_config(glm52()));
  EXPECT_EQ(1.0f, f[0]);
  EXPECT_NEAR(1 / std::sqrt(8e6), f[16], 1e-9);
}

TEST(HfConfig, TheFlagDecidesTheIndexerRope) {
  const std::string glm =
      with(with(kDeepseekV32, "deepseek_v32", "glm_moe_dsa"), "\"type\": \"yarn\"", "\"rope_type\": \"default\"");
  EXPECT_EQ(RopeLayout::interleaved, read_config(from_json(glm))->indexer_rope);
  EXPECT_FLOAT_EQ(1 / std::sqrt(192.0f), read_config(from_json(glm))->softmax_scale()) << "no YaRN, no m^2";
  const std::string flag = R"("index_topk": 2048, "indexer_rope_interleave": )";
  EXPECT_EQ(RopeLayout::half_split,
            read_config(from_json(with(glm, R"("index_topk": 2048)", flag + "false")))->indexer_rope);
  EXPECT_EQ(RopeLayout::interleaved,
            read_config(from_json(with(kDeepseekV32, R"("index_topk": 2048)", flag + "true")))->indexer_rope);
}

TEST(HfConfig, SharingByListThenPatternThenFrequency) {
  const std::string small = with(with(kDeepseekV32, "\"num_hidden_layers\": 61", "\"num_hidden_layers\": 4"),
                                 "\"first_k_dense_replace\": 3", "\"first_k_dense_replace\": 1");
  const std::string frequency = with(small, "\"index_topk\": 2048", R"("index_topk": 2048, "index_topk_freq": 2)");
  const std::string pattern =
      with(frequency, "\"index_topk\": 2048", R"("index_topk": 2048, "index_topk_pattern": "FSSF")");
  const std::string types = with(pattern, "\"index_topk\": 2048",
                                 R"("index_topk": 2048, "indexer_types": ["full", "shared", "shared", "shared"])");
  EXPECT_EQ((std::vector<int64_t>{0, 1, 3}), full_layers_of(*read_config(from_json(frequency))));
  EXPECT_EQ((std::vector<int64_t>{0, 3}), full_layers_of(*read_config(from_json(pattern))));
  EXPECT_EQ((std::vector<int64_t>{0}), full_layers_of(*read_config(from_json(types))));
  EXPECT_EQ(StatusCode::corrupt_data, read_config(from_json(with(types, "\"shared\"", "\"mixed\""))).status().code());
  EXPECT_EQ(StatusCode::corrupt_data, read_config(from_json(with(pattern, "FSSF", "FS"))).status().code());
}

TEST(HfConfig, BadFilesAreNamed) {
  EXPECT_EQ(StatusCode::not_found, read_config(from_json("")).status().code());
  EXPECT_EQ(StatusCode::corrupt_data, read_config(from_json("[1, 2]")).status().code());
  EXPECT_EQ(StatusCode::corrupt_data, read_config(from_json("{\"model_type\"")).status().code());
  EXPECT_EQ(StatusCode::unsupported, read_config(from_json(R"({"model_type": "llama"})")).status().code());
  const Status missing = read_config(from_json(with(kDeepseekV32, "kv_lora_rank", "kv_rank"))).status();
  EXPECT_EQ(StatusCode::not_found, missing.code());
  EXPECT_NE(std::string::npos, missing.message().find("kv_lora_rank"));
  EXPECT_EQ(
      StatusCode::corrupt_data,
      read_config(from_json(with(kDeepseekV32, "\"kv_lora_rank\": 512", "\"kv_lora_rank\": \"512\""))).status().code());
  EXPECT_EQ(StatusCode::unsupported,
            read_config(from_json(with(kDeepseekV32, "\"yarn\"", "\"longrope\""))).status().code());
  for (const char* wrong : {"\"mlp_layer_types\": 5", "\"indexer_types\": [[[\"full\"]]]",
                            "\"index_topk_freq\": 2, \"index_skip_topk_offset\": -9223372036854775808"}) {
    const std::string text = with(kDeepseekV32, "\"index_topk\": 2048", concat("\"index_topk\": 2048, ", wrong));
    EXPECT_EQ(StatusCode::corrupt_data, read_config(from_json(text)).status().code()) << wrong;
  }
}

TEST(HfConfig, DenseFallbacks) {
  for (const char* type : {"deepseek_v3", "glm4_moe_lite"}) {
    const Result<ModelConfig> config = read_config(from_json(with(kDeepseekV32, "deepseek_v32", type)));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_FALSE(config->has_indexer());
    EXPECT_EQ(GateKind::sigmoid, config->gate);
  }
}

}  // namespace
}  // namespace winnow
