// SPDX-License-Identifier: Apache-2.0
#include "models/hf_names.hpp"

#include <charconv>

#include "core/concat.hpp"

namespace winnow {
namespace {

struct Pair {
  std::string_view hf, canonical;
};

constexpr Pair kGlobal[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

// Behind "model.layers.N." and "blk.N.".
constexpr Pair kLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"self_attn.indexer.wk.weight", "indexer.attn_k.weight"},
    {"self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"},
    {"self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"},
    {"self_attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"eh_proj.weight", "nextn.eh_proj.weight"},
    {"enorm.weight", "nextn.enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight"},
    {"shared_head.norm.weight", "nextn.shared_head_norm.weight"},
    {"embed_tokens.weight", "nextn.embed_tokens.weight"},
    {"shared_head.head.weight", "nextn.shared_head_head.weight"},
};

// Behind "mlp.experts.E." and "blk.N.".
constexpr Pair kExpert[] = {
    {"gate_proj.weight", "ffn_gate_exps.weight"},
    {"up_proj.weight", "ffn_up_exps.weight"},
    {"down_proj.weight", "ffn_down_exps.weight"},
};

constexpr std::string_view kHfLayer = "model.layers.", kCanonicalLayer = "blk.", kHfExpert = "mlp.experts.";

// Takes "<prefix><number>." off the front of text. Nothing when it is not there.
std::optional<int64_t> take_number(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  const char* begin = text.data() + prefix.size();
  const char* end = text.data() + text.size();
  int64_t number = -1;
  const auto [rest, failure] = std::from_chars(begin, end, number);
  if (failure != std::errc() || number < 0 || rest == end || *rest != '.') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest + 1 - text.data()));
  return number;
}

template <std::size_t N>
std::optional<std::string_view> look_up(const Pair (&table)[N], std::string_view name, bool by_hf) {
  for (const Pair& pair : table) {
    if ((by_hf ? pair.hf : pair.canonical) == name) return by_hf ? pair.canonical : pair.hf;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CanonicalName> canonical_name(std::string_view hf_name) {
  if (const auto global = look_up(kGlobal, hf_name, true)) return CanonicalName{std::string(*global)};
  std::string_view rest = hf_name;
  const std::optional<int64_t> layer = take_number(rest, kHfLayer);
  if (!layer) return std::nullopt;
  const std::optional<int64_t> expert = take_number(rest, kHfExpert);
  const auto name = expert ? look_up(kExpert, rest, true) : look_up(kLayer, rest, true);
  if (!name) return std::nullopt;
  return CanonicalName{concat(kCanonicalLayer, *layer, ".", *name), *layer, expert.value_or(-1)};
}

std::optional<std::string> hf_name(std::string_view canonical, int64_t expert) {
  if (const auto global = look_up(kGlobal, canonical, false)) return std::string(*global);
  std::string_view rest = canonical;
  const std::optional<int64_t> layer = take_number(rest, kCanonicalLayer);
  if (!layer) return std::nullopt;
  if (rest == "attn_k_b.weight" || rest == "attn_v_b.weight") rest = "attn_kv_b.weight";
  if (const auto name = look_up(kExpert, rest, false)) {
    return concat(kHfLayer, *layer, ".", kHfExpert, expert, ".", *name);
  }
  if (const auto name = look_up(kLayer, rest, false)) return concat(kHfLayer, *layer, ".", *name);
  return std::nullopt;
}

}  // namespace winnow
