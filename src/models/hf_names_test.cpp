// SPDX-License-Identifier: Apache-2.0
#include "models/hf_names.hpp"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(HfNames, ForeignNamesHaveNoCounterpart) {
  for (const char* name : {"", "model.layers.", "model.layers.3", "model.layers.x.input_layernorm.weight",
                           "model.layers.-1.input_layernorm.weight", "model.layers.3.mlp.experts.5",
                           "model.layers.99999999999999999999.input_layernorm.weight", "model.visual.weight"}) {
    EXPECT_FALSE(canonical_name(name).has_value()) << name;
  }
  for (const char* name : {"", "blk.", "blk.3", "blk.3.unknown.weight", "rope_freqs.weight"}) {
    EXPECT_FALSE(hf_name(name).has_value()) << name;
  }
}

TEST(HfNames, LayersAndExperts) {
  const CanonicalName norm = *canonical_name("model.layers.12.input_layernorm.weight");
  EXPECT_EQ("blk.12.attn_norm.weight", norm.name);
  EXPECT_EQ(12, norm.layer);
  EXPECT_EQ(-1, norm.expert);
  const CanonicalName expert = *canonical_name("model.layers.3.mlp.experts.250.up_proj.weight");
  EXPECT_EQ("blk.3.ffn_up_exps.weight", expert.name);
  EXPECT_EQ(250, expert.expert);
  EXPECT_EQ("model.layers.3.mlp.experts.250.up_proj.weight", *hf_name("blk.3.ffn_up_exps.weight", 250));
}

TEST(HfNames, KvBIsOneTensorOnThatSide) {
  EXPECT_EQ("blk.0.attn_kv_b.weight", canonical_name("model.layers.0.self_attn.kv_b_proj.weight")->name);
  for (const char* name : {"blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight", "blk.0.attn_kv_b.weight"}) {
    EXPECT_EQ("model.layers.0.self_attn.kv_b_proj.weight", *hf_name(name));
  }
}

TEST(HfNames, ThereAndBack) {
  for (const char* name : {"token_embd.weight", "output.weight", "blk.7.attn_q_a_norm.weight",
                           "blk.7.indexer.k_norm.bias", "blk.7.exp_probs_b.bias", "blk.7.ffn_down_shexp.weight",
                           "blk.78.nextn.eh_proj.weight", "blk.1.ffn_gate.weight"}) {
    ASSERT_TRUE(hf_name(name).has_value()) << name;
    EXPECT_EQ(name, canonical_name(*hf_name(name))->name);
  }
}

}  // namespace
}  // namespace winnow
