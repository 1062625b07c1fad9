// SPDX-License-Identifier: Apache-2.0
// convert(): a made-up checkpoint of every kind of tensor, and the fixtures against the GGUF files made from them
// elsewhere.
#include "models/convert.hpp"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "core/dtype.hpp"
#include "core/log.hpp"
#include "formats/rows.hpp"
#include "formats/test_files.hpp"
#include "models/config.hpp"

namespace winnow {
namespace {

// A safetensors file from named tensors, in float32, bf16 or fp8.
class CheckpointMaker {
 public:
  // shape as the checkpoint has it: [out, in].
  void add(const std::string& name, const std::vector<int64_t>& shape, const std::string& dtype = "BF16") {
    int64_t elements = 1;
    std::string text;
    for (int64_t size : shape) {
      elements *= size;
      if (!text.empty()) text += ',';
      text += std::to_string(size);
    }
    std::string bytes;
    for (int64_t i = 0; i < elements; ++i) {
      const float x = std::uniform_real_distribution<float>(-1, 1)(random_);
      if (dtype == "F32") bytes += raw(x);
      if (dtype == "BF16") bytes += raw(to_bf16(x).bits);
      if (dtype == "F8_E4M3") bytes += raw(to_e4m3(x * 256).bits);
    }
    place(name, text, dtype, bytes);
    if (dtype != "F8_E4M3") return;
    const int64_t high = (shape[0] + 127) / 128, wide = (shape[1] + 127) / 128;
    add(name + "_scale_inv", {high, wide}, "F32");
  }
  [[nodiscard]] std::string bytes() const { return safetensors::raw_file("{" + json_ + "}", data_); }

 private:
  void place(const std::string& name, const std::string& shape, const std::string& dtype, const std::string& bytes) {
    while (data_.size() % 4 != 0) data_ += '\0';
    json_ += (json_.empty() ? "\"" : ",\"") + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
             R"(],"data_offsets":[)" + std::to_string(data_.size()) + "," +
             std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
  }
  std::mt19937 random_{11};
  std::string json_, data_;
};

constexpr int kHidden = 64, kHeads = 2, kNope = 48, kRope = 16, kV = 32, kLatent = 160, kQ = 32, kExperts = 3,
              kWidth = 32;

const char* const kConfig = R"({"model_type":"glm_moe_dsa","vocab_size":40,"hidden_size":64,"intermediate_size":96,
"moe_intermediate_size":32,"num_hidden_layers":3,"num_attention_heads":2,"n_shared_experts":1,"n_routed_experts":3,
"num_experts_per_tok":2,"routed_scaling_factor":2.5,"kv_lora_rank":160,"q_lora_rank":32,"qk_rope_head_dim":16,
"qk_nope_head_dim":48,"v_head_dim":32,"first_k_dense_replace":1,"norm_topk_prob":true,"scoring_func":"sigmoid",
"max_position_embeddings":512,"rms_norm_eps":1e-05,"rope_theta":8000000,"index_topk":8,"index_head_dim":32,
"index_n_heads":2,"indexer_types":["full","full","shared"],"num_nextn_predict_layers":1,"eos_token_id":[3,4],
"pad_token_id":3})";

void add_attention(CheckpointMaker& make, const std::string& layer, bool indexer) {
  const std::string attn = layer + "self_attn.";
  make.add(layer + "input_layernorm.weight", {kHidden});
  make.add(layer + "post_attention_layernorm.weight", {kHidden});
  make.add(attn + "q_a_proj.weight", {kQ, kHidden}, "F8_E4M3");
  make.add(attn + "q_a_layernorm.weight", {kQ});
  make.add(attn + "q_b_proj.weight", {kHeads * (kNope + kRope), kQ});
  make.add(attn + "kv_a_proj_with_mqa.weight", {kLatent + kRope, kHidden});
  make.add(attn + "kv_a_layernorm.weight", {kLatent});
  make.add(attn + "kv_b_proj.weight", {kHeads * (kNope + kV), kLatent}, "F8_E4M3");
  make.add(attn + "o_proj.weight", {kHidden, kHeads * kV});
  if (!indexer) return;
  make.add(attn + "indexer.wq_b.weight", {2 * 32, kQ});
  make.add(attn + "indexer.wk.weight", {32, kHidden});
  make.add(attn + "indexer.k_norm.weight", {32}, "F32");
  make.add(attn + "indexer.k_norm.bias", {32}, "F32");
  make.add(attn + "indexer.weights_proj.weight", {2, kHidden});
}

void add_ffn(CheckpointMaker& make, const std::string& stem, int width) {
  make.add(stem + "gate_proj.weight", {width, kHidden});
  make.add(stem + "up_proj.weight", {width, kHidden});
  make.add(stem + "down_proj.weight", {kHidden, width});
}

void add_layer(CheckpointMaker& make, int index, bool dense, bool indexer, int skip_expert) {
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  add_attention(make, layer, indexer);
  if (dense) return add_ffn(make, layer + "mlp.", 96);
  make.add(layer + "mlp.gate.weight", {kExperts, kHidden});
  make.add(layer + "mlp.gate.e_score_correction_bias", {kExperts}, "F32");
  for (int e = kExperts - 1; e >= 0; --e) {  // not in order: the stack must be
    if (e != skip_expert) add_ffn(make, layer + "mlp.experts." + std::to_string(e) + ".", kWidth);
  }
  add_ffn(make, layer + "mlp.shared_experts.", kWidth);
}

// GLM-5.2 in small: dense, MoE, MoE sharing its selection, and an MTP layer; fp8 projections.
std::string model_bytes(int skip_expert = -1) {
  CheckpointMaker make;
  make.add("model.embed_tokens.weight", {40, kHidden});
  make.add("model.norm.weight", {kHidden});
  make.add("lm_head.weight", {40, kHidden});
  add_layer(make, 0, true, true, -1);
  add_layer(make, 1, false, true, skip_expert);
  add_layer(make, 2, false, false, -1);
  add_layer(make, 3, false, true, -1);
  const std::string mtp = "model.layers.3.";
  for (const char* name : {"enorm", "hnorm", "shared_head.norm"}) make.add(mtp + name + ".weight", {kHidden});
  make.add(mtp + "eh_proj.weight", {kHidden, 2 * kHidden});
  make.add("model.layers.0.self_attn.rotary_emb.inv_freq", {8}, "F32");
  return make.bytes();
}

class Convert : public ::testing::Test {
 protected:
  Convert() {
    set_log_sink([this](LogLevel, std::string_view message) { logged += concat(message, "\n"); });
    folder.write("config.json", kConfig);
    folder.write("model.safetensors", model_bytes());
  }
  ~Convert() override { set_log_sink({}); }
  [[nodiscard]] Checkpoint source() const {
    Result<Checkpoint> opened = open_checkpoint(folder.path());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  [[nodiscard]] Checkpoint converted(StorageType type, const ConvertOptions& options = {}) const {
    const Status status = convert(source(), type, folder.path("out.gguf"), options);
    EXPECT_TRUE(status.ok()) << status.message();
    Result<Checkpoint> opened = open_checkpoint(folder.path("out.gguf"));
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  TempFolder folder;
  std::string logged;
};

std::vector<float> values_of(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo* tensor = checkpoint.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> out(static_cast<std::size_t>(tensor->elements()));
  decode_rows(*tensor, 0, tensor->elements() / tensor->dims[0], out.data());
  return out;
}

TEST_F(Convert, EveryTensorHasItsPlace) {
  const Checkpoint hf = source(), gguf = converted(StorageType::F32);
  EXPECT_EQ(values_of(gguf, "token_embd.weight"), values_of(hf, "model.embed_tokens.weight"));
  EXPECT_EQ(values_of(gguf, "blk.2.attn_output.weight"), values_of(hf, "model.layers.2.self_attn.o_proj.weight"));
  EXPECT_EQ(values_of(gguf, "blk.3.nextn.eh_proj.weight"), values_of(hf, "model.layers.3.eh_proj.weight"));
  EXPECT_EQ(values_of(gguf, "blk.0.attn_q_a.weight"), values_of(hf, "model.layers.0.self_attn.q_a_proj.weight"))
      << "fp8";
  const auto stack = values_of(gguf, "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(gguf.find("blk.1.ffn_down_exps.weight")->dims, (std::array<int64_t, 4>{kWidth, kHidden, kExperts, 1}));
  for (int e = 0; e < kExperts; ++e) {
    const auto one = values_of(hf, concat("model.layers.1.mlp.experts.", e, ".down_proj.weight"));
    EXPECT_TRUE(std::equal(one.begin(), one.end(), stack.begin() + e * kWidth * kHidden)) << e;
  }
  EXPECT_EQ(gguf.find("blk.2.indexer.attn_k.weight"), nullptr);
  EXPECT_EQ(gguf.find("blk.0.attn_kv_b.weight"), nullptr);
  EXPECT_NE(logged.find("1 tensors have no place"), std::string::npos) << logged;
  EXPECT_NE(logged.find("rotary_emb.inv_freq"), std::string::npos) << logged;
}

TEST_F(Convert, KvBIsSplitAndItsKeysTransposed) {
  const Checkpoint hf = source(), gguf = converted(StorageType::F32);
  const auto both = values_of(hf, "model.layers.1.self_attn.kv_b_proj.weight");
  const auto k = values_of(gguf, "blk.1.attn_k_b.weight"), v = values_of(gguf, "blk.1.attn_v_b.weight");
  EXPECT_EQ(gguf.find("blk.1.attn_k_b.weight")->dims, (std::array<int64_t, 4>{kNope, kLatent, kHeads, 1}));
  EXPECT_EQ(gguf.find("blk.1.attn_v_b.weight")->dims, (std::array<int64_t, 4>{kLatent, kV, kHeads, 1}));
  for (int h = 0; h < kHeads; ++h) {
    for (int64_t l = 0; l < kLatent; ++l) {
      const auto row = [&](int r) { return both[static_cast<std::size_t>((h * (kNope + kV) + r) * kLatent + l)]; };
      for (int n = 0; n < kNope; ++n) ASSERT_EQ(k[static_cast<std::size_t>((h * kLatent + l) * kNope + n)], row(n));
      for (int i = 0; i < kV; ++i) ASSERT_EQ(v[static_cast<std::size_t>((h * kV + i) * kLatent + l)], row(kNope + i));
    }
  }
}

TEST_F(Convert, TypesFollowTheRules) {
  const Checkpoint gguf = converted(StorageType::Q8_0);
  const auto type = [&](const char* name) { return gguf.find(name)->type; };
  EXPECT_EQ(type("blk.1.attn_q_b.weight"), StorageType::Q8_0);
  EXPECT_EQ(type("blk.1.attn_v_b.weight"), StorageType::Q8_0);
  EXPECT_EQ(type("blk.1.attn_k_b.weight"), StorageType::BF16) << "rows of 48 are no whole blocks of 32";
  EXPECT_EQ(type("blk.1.ffn_gate_inp.weight"), StorageType::F32);
  EXPECT_EQ(type("blk.1.indexer.proj.weight"), StorageType::F32);
  EXPECT_EQ(type("blk.1.indexer.k_norm.bias"), StorageType::F32);
  EXPECT_EQ(type("output_norm.weight"), StorageType::F32);
  EXPECT_EQ(type("output.weight"), StorageType::Q8_0);
}

TEST_F(Convert, ConfigSurvivesTheRoundTrip) {
  const auto before = read_config(source());
  const Checkpoint gguf = converted(StorageType::BF16, {.name = "small", .chat_template = "{{ x }}"});
  const auto after = read_config(gguf);
  ASSERT_TRUE(before.ok() && after.ok()) << before.status().message() << after.status().message();
  EXPECT_EQ(after->architecture, "glm-dsa");
  EXPECT_EQ(after->name, "small");
  EXPECT_EQ(after->layers, before->layers);
  EXPECT_EQ(after->nextn_layers, 1);
  EXPECT_EQ(after->full_indexer, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(after->head_nope, kNope);
  EXPECT_EQ(after->head_rope, kRope);
  EXPECT_EQ(after->head_v, kV);
  EXPECT_EQ(after->kv_lora, kLatent);
  EXPECT_EQ(after->q_lora, kQ);
  EXPECT_EQ(after->experts_used, 2);
  EXPECT_EQ(after->expert_scale, 2.5f);
  EXPECT_EQ(after->norm_eps, 1e-5f);
  EXPECT_EQ(after->rope_theta, 8e6);
  EXPECT_EQ(after->index_topk, 8);
  EXPECT_EQ(after->context, 512);
  EXPECT_EQ(after->softmax_scale(), before->softmax_scale());
  EXPECT_EQ(gguf.chat_template, "{{ x }}");
  EXPECT_EQ(gguf.metadata.strings("tokenizer.ggml.tokens"), nullptr) << "no tokenizer.json, no vocabulary";
  EXPECT_NE(logged.find("has no tokenizer.json"), std::string::npos) << logged;
}

TEST_F(Convert, YarnAndGroupsSurvive) {
  std::string config = kConfig;
  config.replace(config.find("glm_moe_dsa"), 11, "deepseek_v32");
  config.replace(
      config.find("\"rope_theta\""), 0,
      R"("rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":64,"mscale":1,"mscale_all_dim":1},)");
  folder.write("config.json", config);
  const auto before = read_config(source());
  const auto after = read_config(converted(StorageType::BF16));
  ASSERT_TRUE(before.ok() && after.ok()) << before.status().message() << after.status().message();
  EXPECT_EQ(after->architecture, "deepseek32");
  EXPECT_TRUE(after->yarn.enabled);
  EXPECT_EQ(after->yarn.original_context, 64);
  EXPECT_NEAR(after->softmax_scale(), before->softmax_scale(), 1e-7);
  EXPECT_EQ(after->indexer_rope, RopeLayout::half_split);
  // A layout that no GGUF key can say must not be lost silently.
  config.replace(config.find("\"index_topk\""), 0, "\"indexer_rope_interleave\":true,");
  folder.write("config.json", config);
  EXPECT_FAILS(convert(source(), StorageType::BF16, folder.path("no.gguf")), "rope", "interleaved");
  EXPECT_FALSE(std::filesystem::exists(folder.path("no.gguf")));
}

const char* const kTokenizer = R"({"added_tokens":[{"id":3,"content":"<|endoftext|>","special":true},
{"id":4,"content":"<|user|>","special":true},{"id":6,"content":"<think>","special":false}],
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":
"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
{"type":"ByteLevel","use_regex":false}]},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}})";

TEST_F(Convert, TokenizerBecomesKeys) {
  folder.write("tokenizer.json", kTokenizer);
  const Checkpoint gguf = converted(StorageType::F32);
  const auto* tokens = gguf.metadata.strings("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  ASSERT_EQ(tokens->size(), 40u) << "as many as the embedding has rows";
  EXPECT_EQ((*tokens)[2], "ab");
  EXPECT_EQ((*tokens)[6], "<think>");
  EXPECT_EQ((*tokens)[5], "[PAD5]");
  const auto types = gguf.metadata.integers("tokenizer.ggml.token_type").value();
  EXPECT_EQ(std::vector<int64_t>(types.begin(), types.begin() + 8), (std::vector<int64_t>{1, 1, 1, 3, 3, 5, 4, 5}));
  EXPECT_EQ(*gguf.metadata.strings("tokenizer.ggml.merges"), (std::vector<std::string>{"a b"}));
  EXPECT_EQ(gguf.metadata.string("tokenizer.ggml.pre").value(), "glm4");
  EXPECT_EQ(gguf.metadata.integer("tokenizer.ggml.eos_token_id").value(), 3);
  EXPECT_EQ(gguf.metadata.integer("tokenizer.ggml.eot_token_id").value(), 4);
  EXPECT_EQ(gguf.metadata.find("tokenizer.ggml.eom_token_id"), nullptr) << "the vocabulary has no such token";
  EXPECT_FALSE(gguf.metadata.boolean("tokenizer.ggml.add_bos_token").value());
}

TEST_F(Convert, WrongTokenizers) {
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = kTokenizer;
    text.replace(text.find(from), from.size(), to);
    folder.write("tokenizer.json", text);
    return convert(source(), StorageType::F32, folder.path("no.gguf"));
  };
  EXPECT_FAILS(with("{1,3}|", "{1,2}|"), "tokenizer.json", "pre-tokeniser");
  EXPECT_FAILS(with("\"id\":6", "\"id\":60"), "highest id is 60", "40 rows");
  EXPECT_FAILS(with("\"id\":6", "\"id\":-6"), "<think>", "no id");
  EXPECT_FAILS(with("[\"a\",\"b\"]", "7"), "merge 0");
  folder.write("tokenizer.json", "{");
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path("no.gguf")), "tokenizer.json", "JSON");
  EXPECT_FALSE(std::filesystem::exists(folder.path("no.gguf")));
}

TEST_F(Convert, ReplacesRegularFilesOnly) {
  EXPECT_FAILS(convert(source(), StorageType::F32, ""), "empty");
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path()), "is a folder");
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path("config.json")), "part of the checkpoint");
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FAILS(convert(source(), StorageType::F32, pipe), "device, pipe or socket");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(Convert, LeavesNothingWhenInterrupted) {
  int asked = 0;
  ConvertOptions options;
  options.cancelled = [&asked] { return ++asked == 5; };
  const Status status = convert(source(), StorageType::F32, folder.path("out.gguf"), options);
  EXPECT_EQ(status.code(), StatusCode::cancelled) << status.message();
  EXPECT_EQ(asked, 5);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.gguf")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.gguf.partial")));
}

TEST_F(Convert, RefusesWhatItCannotDo) {
  EXPECT_FAILS(convert(source(), StorageType::Q4_K, folder.path("no.gguf")), "Q4_K", "Q8_0");
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path("model.safetensors")), "part of the checkpoint");
  const Checkpoint gguf = converted(StorageType::F32);
  EXPECT_FAILS(convert(gguf, StorageType::F32, folder.path("no.gguf")), "GGUF file already");
  folder.write("model.safetensors", model_bytes(1));
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path("no.gguf")), "experts", "missing");
  const std::string whole = model_bytes();
  folder.write("model.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_FAILS(convert(source(), StorageType::F32, folder.path("no.gguf")), "are missing");
}

struct Fixture {
  const char *folder, *gguf;
  StorageType type;
};

// Values of Q8_0 files may differ where the two writers round 1 / d and ties differently: by one step, seldom.
void expect_same_tensor(const TensorInfo& ours, const TensorInfo& theirs) {
  ASSERT_EQ(ours.dims, theirs.dims) << ours.name;
  ASSERT_EQ(ours.type, theirs.type) << ours.name;
  const auto* a = reinterpret_cast<const uint8_t*>(ours.data);
  const auto* b = reinterpret_cast<const uint8_t*>(theirs.data);
  int64_t different = 0;
  for (int64_t i = 0; i < ours.bytes; ++i) {
    if (a[i] == b[i]) continue;
    ++different;
    ASSERT_EQ(ours.type, StorageType::Q8_0) << ours.name << " byte " << i;
    ASSERT_EQ(std::abs(static_cast<int8_t>(a[i]) - static_cast<int8_t>(b[i])), 1) << ours.name << " byte " << i;
  }
  ASSERT_LE(different * 1000, ours.bytes) << ours.name;
}

TEST(ConvertFixtures, EqualTheFilesMadeElsewhere) {
  const std::string root = "../shared/models/";
  if (!std::filesystem::exists(root + "tiny")) GTEST_SKIP() << root << " is not here";
  const TempFolder folder;
  set_log_sink([](LogLevel, std::string_view) {});
  for (const Fixture& f :
       {Fixture{"nano-dsv32", "nano-dsv32-bf16", StorageType::BF16},
        Fixture{"nano-glm5", "nano-glm5-bf16", StorageType::BF16},
        Fixture{"nano-glm52", "nano-glm52-bf16", StorageType::BF16}, Fixture{"tiny", "tiny-q8_0", StorageType::Q8_0}}) {
    const auto hf = open_checkpoint(root + f.folder);
    const auto theirs = open_checkpoint(root + "gguf/" + f.gguf + ".gguf");
    ASSERT_TRUE(hf.ok() && theirs.ok()) << hf.status().message() << theirs.status().message();
    const Status status =
        convert(*hf, f.type, folder.path("out.gguf"), {.name = {}, .chat_template = theirs->chat_template});
    ASSERT_TRUE(status.ok()) << status.message();
    const auto ours = open_checkpoint(folder.path("out.gguf"));
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    EXPECT_EQ(ours->tensors.size(), theirs->tensors.size());
    for (const TensorInfo& tensor : theirs->tensors) {
      const TensorInfo* mine = ours->find(tensor.name);
      ASSERT_NE(mine, nullptr) << tensor.name;
      expect_same_tensor(*mine, tensor);
    }
    const bool has_tokenizer = !hf->tokenizer_json.empty();
    for (const auto& [key, value] : theirs->metadata.values()) {
      if (!has_tokenizer && key.starts_with("tokenizer.")) continue;  // their nano files got a made-up vocabulary
      const gguf::Value* mine = ours->metadata.find(key);
      ASSERT_NE(mine, nullptr) << f.gguf << " " << key;
      EXPECT_TRUE(*mine == value) << f.gguf << " " << key;
    }
    for (const auto& [key, value] : ours->metadata.values())
      EXPECT_NE(theirs->metadata.find(key), nullptr) << "only ours: " << key;
  }
  set_log_sink({});
}

}  // namespace
}  // namespace winnow
