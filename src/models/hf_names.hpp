// SPDX-License-Identifier: Apache-2.0
// Names of the same tensor in published checkpoints (Hugging Face) and in GGUF, which is our canonical form.
//
// Two tensors do not map one to one: self_attn.kv_b_proj is split and half transposed into attn_k_b and attn_v_b
// (canonical name here: attn_kv_b, the unsplit form of older GGUF files), and mlp.experts.E.* are stacked along a
// third dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {

struct CanonicalName {
  std::string name;     // "blk.3.ffn_gate_exps.weight"
  int64_t layer = -1;   // 3; -1: not of a layer
  int64_t expert = -1;  // index in the stack; -1: not one of several experts
};

// Nothing when the name is not one of the family's.
[[nodiscard]] std::optional<CanonicalName> canonical_name(std::string_view hf_name);

// The inverse: expert is ignored unless the canonical tensor is a stack of experts. attn_k_b and attn_v_b give
// kv_b_proj. Nothing for a name that has no counterpart.
[[nodiscard]] std::optional<std::string> hf_name(std::string_view canonical, int64_t expert = 0);

}  // namespace winnow
