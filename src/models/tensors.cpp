// SPDX-License-Identifier: Apache-2.0
#include "models/tensors.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_set>

#include "models/hf_names.hpp"

namespace winnow {
namespace {

using Dims = std::vector<int64_t>;

// Collects needs under canonical names, translated to those of the container.
class Needs {
 public:
  Needs(const Checkpoint& checkpoint, const ModelConfig& config, bool dense)
      : checkpoint_(checkpoint), c_(config), dense_(dense), gguf_(checkpoint.format == ContainerFormat::gguf) {}

  std::vector<TensorNeed> collect() {
    add("token_embd.weight", {c_.hidden, c_.vocab});
    add("output_norm.weight", {c_.hidden});
    // A file without a head ties it to the embedding.
    if (has("output.weight")) add("output.weight", {c_.hidden, c_.vocab});
    for (layer_ = 0; layer_ < c_.layers; ++layer_) {
      add("attn_norm.weight", {c_.hidden});
      attention();
      if (!dense_ && c_.has_indexer() && c_.full_indexer[layer_]) indexer();
      add("ffn_norm.weight", {c_.hidden});
      if (layer_ < c_.dense_layers) {
        add("ffn_gate.weight", {c_.hidden, c_.dense_width});
        add("ffn_up.weight", {c_.hidden, c_.dense_width});
        add("ffn_down.weight", {c_.dense_width, c_.hidden});
      } else {
        mixture();
      }
    }
    return std::move(needs_);
  }

 private:
  void attention() {
    const int64_t head_qk = c_.head_nope + c_.head_rope;
    if (c_.q_lora == 0) {
      add("attn_q.weight", {c_.hidden, c_.heads * head_qk});
    } else {
      add("attn_q_a.weight", {c_.hidden, c_.q_lora});
      add("attn_q_a_norm.weight", {c_.q_lora});
      add("attn_q_b.weight", {c_.q_lora, c_.heads * head_qk});
    }
    add("attn_kv_a_mqa.weight", {c_.hidden, c_.kv_lora + c_.head_rope});
    add("attn_kv_a_norm.weight", {c_.kv_lora});
    // Files from before the split, and every Hugging Face checkpoint, have one kv_b.
    if (!gguf_ || (!has("attn_k_b.weight") && has("attn_kv_b.weight"))) {
      add("attn_kv_b.weight", {c_.kv_lora, c_.heads * (c_.head_nope + c_.head_v)});
    } else {
      add("attn_k_b.weight", {c_.head_nope, c_.kv_lora, c_.heads});
      add("attn_v_b.weight", {c_.kv_lora, c_.head_v, c_.heads});
    }
    add("attn_output.weight", {c_.heads * c_.head_v, c_.hidden});
  }

  void indexer() {
    add("indexer.attn_q_b.weight", {c_.q_lora > 0 ? c_.q_lora : c_.hidden, c_.index_heads * c_.index_dim});
    add("indexer.attn_k.weight", {c_.hidden, c_.index_dim});
    add("indexer.k_norm.weight", {c_.index_dim});
    add("indexer.k_norm.bias", {c_.index_dim});
    add("indexer.proj.weight", {c_.hidden, c_.index_heads});
  }

  void mixture() {
    add("ffn_gate_inp.weight", {c_.hidden, c_.experts});
    // Models with a softmax gate (DeepSeek-V2) have no selection bias.
    if (c_.gate == GateKind::sigmoid || has("exp_probs_b.bias")) add("exp_probs_b.bias", {c_.experts});
    if (gguf_ && !has("ffn_gate_exps.weight") && has("ffn_gate_up_exps.weight")) {
      stack("ffn_gate_up_exps.weight", {c_.hidden, 2 * c_.expert_width});
    } else {
      stack("ffn_gate_exps.weight", {c_.hidden, c_.expert_width});
      stack("ffn_up_exps.weight", {c_.hidden, c_.expert_width});
    }
    stack("ffn_down_exps.weight", {c_.expert_width, c_.hidden});
    if (c_.shared_experts == 0) return;
    const int64_t width = c_.expert_width * c_.shared_experts;
    add("ffn_gate_shexp.weight", {c_.hidden, width});
    add("ffn_up_shexp.weight", {c_.hidden, width});
    add("ffn_down_shexp.weight", {width, c_.hidden});
  }

  void add(std::string_view canonical, Dims dims) {
    needs_.push_back({translate(canonical, 0), std::move(dims), layer_});
  }

  // A stack of experts: one tensor with a third dimension in GGUF, one tensor per expert elsewhere.
  void stack(std::string_view canonical, Dims dims) {
    if (gguf_) {
      dims.push_back(c_.experts);
      needs_.push_back({translate(canonical, 0), std::move(dims), layer_, true});
      return;
    }
    for (int64_t e = 0; e < c_.experts; ++e) needs_.push_back({translate(canonical, e), dims, layer_, true});
  }

  [[nodiscard]] bool has(std::string_view canonical) const {
    return checkpoint_.find(translate(canonical, 0)) != nullptr;
  }

  [[nodiscard]] std::string translate(std::string_view canonical, int64_t expert) const {
    const std::string name = layer_ < 0 ? std::string(canonical) : concat("blk.", layer_, ".", canonical);
    return gguf_ ? name : hf_name(name, expert).value_or(name);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& c_;
  bool dense_, gguf_;
  int64_t layer_ = -1;
  std::vector<TensorNeed> needs_;
};

std::string dims_text(const int64_t* dims, std::size_t rank) {
  std::string text = "[";
  for (std::size_t i = 0; i < rank; ++i) text += concat(i == 0 ? "" : ", ", dims[i]);
  return text + "]";
}

bool has_shape(const TensorInfo& tensor, const Dims& dims) {
  for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
    if (tensor.dims[d] != (d < dims.size() ? dims[d] : 1)) return false;
  }
  return true;
}

void examine(const TensorInfo& tensor, const TensorNeed& need, TensorReport& report) {
  if (!has_shape(tensor, need.dims)) {
    report.wrong_shape.push_back(concat("tensor ", need.name, " has dims ", dims_text(tensor.dims.data(), tensor.rank),
                                        ", the model wants ", dims_text(need.dims.data(), need.dims.size()),
                                        " (contiguous dimension first)"));
    return;
  }
  const StorageTraits* traits = traits_of(tensor.type);
  if (traits != nullptr && traits->decodable) return;
  const std::string type = traits != nullptr ? traits->name : concat("type ", static_cast<uint32_t>(tensor.type));
  report.unreadable.push_back(concat("tensor ", need.name, " is stored as ", type, ", which this build cannot decode"));
}

// The layer number in "blk.N." or "model.layers.N.", else -1.
int64_t layer_of(std::string_view name) {
  for (std::string_view prefix : {std::string_view("blk."), std::string_view("model.layers.")}) {
    if (!name.starts_with(prefix)) continue;
    int64_t layer = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

constexpr std::string_view kScaleSuffix = "_scale_inv";

// A tensor that nothing names but that has its place: block scales of a used weight, an ignored indexer.
bool has_a_place(std::string_view name, const std::unordered_set<std::string_view>& used, bool dense) {
  if (name.ends_with(kScaleSuffix) && used.contains(name.substr(0, name.size() - kScaleSuffix.size()))) return true;
  return dense && name.find("indexer.") != std::string_view::npos;
}

}  // namespace

TensorReport report_tensors(const Checkpoint& checkpoint, const ModelConfig& config, bool dense) {
  TensorReport report;
  report.needed = Needs(checkpoint, config, dense).collect();
  std::unordered_set<std::string_view> used;
  for (const TensorNeed& need : report.needed) {
    used.insert(need.name);
    const TensorInfo* tensor = checkpoint.find(need.name);
    if (tensor == nullptr) {
      report.missing.push_back(need.name);
      continue;
    }
    report.needed_bytes += tensor->bytes;
    examine(*tensor, need, report);
  }
  for (const TensorInfo& tensor : checkpoint.tensors) {
    if (used.contains(tensor.name)) continue;
    if (layer_of(tensor.name) >= config.layers) {
      report.mtp.push_back(tensor.name);
    } else if (!has_a_place(tensor.name, used, dense)) {
      report.unused.push_back(tensor.name);
    }
  }
  return report;
}

Status TensorReport::status() const {
  if (!missing.empty()) {
    return error(StatusCode::not_found, "tensor ", missing.front(), " is missing",
                 missing.size() > 1 ? concat(" (and ", missing.size() - 1, " more)") : std::string(),
                 "; the model cannot run without it. `winnow inspect` lists what the file has");
  }
  if (!wrong_shape.empty()) return error(StatusCode::corrupt_data, wrong_shape.front());
  if (!unreadable.empty()) return error(StatusCode::unsupported, unreadable.front());
  return Status();
}

}  // namespace winnow
