// SPDX-License-Identifier: Apache-2.0
#include "models/weights.hpp"

#include <cstring>

#include "core/checked.hpp"
#include "models/hf_names.hpp"
#include "models/rope_frequencies.hpp"
#include "ops/cpu/decode.hpp"

namespace winnow {
namespace {

// One matrix of a tensor; of a stack, the one at `index`.
Matrix matrix_of(const TensorInfo& tensor, int64_t index = 0) {
  const StorageTraits& traits = *traits_of(tensor.type);
  Matrix m;
  m.type = tensor.type;
  m.in = tensor.dims[0];
  m.out = tensor.dims[1];
  m.row_bytes = m.in / traits.block_elements * traits.block_bytes;
  m.data = tensor.data + index * m.bytes();
  m.block_scales = tensor.block_scales;
  m.scale_stride = ceil_div(m.in, 128);
  return m;
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, Ops& ops)
      : checkpoint_(checkpoint), c_(config), ops_(ops), gguf_(checkpoint.format == ContainerFormat::gguf) {}

  Result<ModelWeights> load() {
    WINNOW_TRY_ASSIGN(weights_.embedding, matrix("token_embd.weight"));
    WINNOW_TRY_ASSIGN(weights_.final_norm, vector("output_norm.weight"));
    WINNOW_TRY_ASSIGN(weights_.head, matrix(find("output.weight") != nullptr ? "output.weight" : "token_embd.weight"));
    WINNOW_TRY_ASSIGN(weights_.rope_frequencies, place(rope_frequencies(c_)));
    for (layer_ = 0; layer_ < c_.layers; ++layer_) {
      LayerWeights layer;
      WINNOW_TRY(attention(layer));
      if (c_.has_indexer() && c_.full_indexer[layer_]) WINNOW_TRY(indexer(layer.indexer));
      WINNOW_TRY(feed_forward(layer));
      weights_.layers.push_back(std::move(layer));
    }
    return std::move(weights_);
  }

 private:
  Status attention(LayerWeights& w) {
    WINNOW_TRY_ASSIGN(w.attn_norm, vector("attn_norm.weight"));
    if (c_.q_lora == 0) {
      WINNOW_TRY_ASSIGN(w.q, matrix("attn_q.weight"));
    } else {
      WINNOW_TRY_ASSIGN(w.q_down, matrix("attn_q_a.weight"));
      WINNOW_TRY_ASSIGN(w.q_norm, vector("attn_q_a_norm.weight"));
      WINNOW_TRY_ASSIGN(w.q_up, matrix("attn_q_b.weight"));
    }
    WINNOW_TRY_ASSIGN(w.kv_down, matrix("attn_kv_a_mqa.weight"));
    WINNOW_TRY_ASSIGN(w.kv_norm, vector("attn_kv_a_norm.weight"));
    WINNOW_TRY_ASSIGN(w.output, matrix("attn_output.weight"));
    if (gguf_ && find("attn_k_b.weight") != nullptr) {
      WINNOW_TRY_ASSIGN(w.k_absorb, matrices("attn_k_b.weight", c_.heads));
      WINNOW_TRY_ASSIGN(w.v_absorb, matrices("attn_v_b.weight", c_.heads));
      return Status();
    }
    return split_kv_b(matrix_of(*find("attn_kv_b.weight")), w);
  }

  // Rows of one head in kv_b: nope rows of W_UK, then value rows of W_UV. W_UV is read in place, W_UK is transposed
  // into a copy, kept in its type where that is a plain float and as float32 otherwise.
  Status split_kv_b(const Matrix& kv_b, LayerWeights& w) {
    const int64_t rows = c_.head_nope + c_.head_v;
    const bool plain = kv_b.type == StorageType::F16 || kv_b.type == StorageType::BF16;
    const int64_t element = plain ? 2 : 4;
    const int64_t head_bytes = c_.kv_lora * c_.head_nope * element;
    WINNOW_TRY_ASSIGN(Buffer copy, Buffer::allocate(head_bytes * c_.heads));
    for (int64_t h = 0; h < c_.heads; ++h) {
      std::byte* data = copy.data() + h * head_bytes;
      transpose(kv_b.rows(h * rows, c_.head_nope), element, data);
      const Matrix k{.data = data,
                     .type = plain ? kv_b.type : StorageType::F32,
                     .out = c_.kv_lora,
                     .in = c_.head_nope,
                     .row_bytes = c_.head_nope * element};
      WINNOW_TRY_ASSIGN(Matrix k_resident, ops_.resident(k));
      WINNOW_TRY_ASSIGN(Matrix v_resident, ops_.resident(kv_b.rows(h * rows + c_.head_nope, c_.head_v)));
      w.k_absorb.push_back(k_resident);
      w.v_absorb.push_back(v_resident);
    }
    weights_.owned_bytes += copy.bytes();
    weights_.mapped_bytes += kv_b.bytes();
    weights_.copies.push_back(std::move(copy));
    return Status();
  }

  static void transpose(const Matrix& m, int64_t element, std::byte* out) {
    std::vector<float> row(static_cast<std::size_t>(m.in));
    for (int64_t o = 0; o < m.out; ++o) {
      const std::byte* source = m.row(o);
      if (element == 4) {
        cpu::decode_matrix_row(m, o, row.data());
        source = reinterpret_cast<const std::byte*>(row.data());
      }
      for (int64_t i = 0; i < m.in; ++i) {
        std::memcpy(out + (i * m.out + o) * element, source + i * element, static_cast<std::size_t>(element));
      }
    }
  }

  Status indexer(IndexerWeights& w) {
    WINNOW_TRY_ASSIGN(w.q, matrix("indexer.attn_q_b.weight"));
    WINNOW_TRY_ASSIGN(w.k, matrix("indexer.attn_k.weight"));
    WINNOW_TRY_ASSIGN(w.head, matrix("indexer.proj.weight"));
    WINNOW_TRY_ASSIGN(w.k_norm, vector("indexer.k_norm.weight"));
    WINNOW_TRY_ASSIGN(w.k_bias, vector("indexer.k_norm.bias"));
    return Status();
  }

  Status feed_forward(LayerWeights& w) {
    WINNOW_TRY_ASSIGN(w.ffn_norm, vector("ffn_norm.weight"));
    if (layer_ < c_.dense_layers) return ffn(w.dense, "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight");
    MixtureWeights& m = w.mixture;
    WINNOW_TRY_ASSIGN(m.router, matrix("ffn_gate_inp.weight"));
    if (find("exp_probs_b.bias") != nullptr) {
      WINNOW_TRY_ASSIGN(m.bias, vector("exp_probs_b.bias"));
    }
    if (gguf_ && find("ffn_gate_exps.weight") == nullptr) {
      WINNOW_TRY_ASSIGN(const std::vector<Matrix> both, matrices("ffn_gate_up_exps.weight", c_.experts));
      for (const Matrix& m2 : both) {
        m.gate.push_back(m2.rows(0, c_.expert_width));
        m.up.push_back(m2.rows(c_.expert_width, c_.expert_width));
      }
    } else {
      WINNOW_TRY_ASSIGN(m.gate, matrices("ffn_gate_exps.weight", c_.experts));
      WINNOW_TRY_ASSIGN(m.up, matrices("ffn_up_exps.weight", c_.experts));
    }
    WINNOW_TRY_ASSIGN(m.down, matrices("ffn_down_exps.weight", c_.experts));
    if (c_.shared_experts == 0) return Status();
    return ffn(m.shared, "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight");
  }

  Status ffn(FfnWeights& w, const char* gate, const char* up, const char* down) {
    WINNOW_TRY_ASSIGN(w.gate, matrix(gate));
    WINNOW_TRY_ASSIGN(w.up, matrix(up));
    WINNOW_TRY_ASSIGN(w.down, matrix(down));
    return Status();
  }

  Result<Matrix> matrix(std::string_view canonical) {
    const Matrix m = matrix_of(*find(canonical));
    weights_.mapped_bytes += m.bytes();
    return ops_.resident(m);
  }

  // A stack: one tensor with a third dimension in GGUF, one tensor per expert elsewhere.
  Result<std::vector<Matrix>> matrices(std::string_view canonical, int64_t count) {
    std::vector<Matrix> stack;
    for (int64_t i = 0; i < count; ++i) {
      const Matrix m = gguf_ ? matrix_of(*find(canonical), i) : matrix_of(*find(canonical, i));
      weights_.mapped_bytes += m.bytes();
      WINNOW_TRY_ASSIGN(Matrix resident, ops_.resident(m));
      stack.push_back(resident);
    }
    return stack;
  }

  // Norms and biases are small: float32 copies, whatever they are stored as.
  Result<Vector> vector(std::string_view canonical) {
    const TensorInfo& tensor = *find(canonical);
    std::vector<float> values(static_cast<std::size_t>(tensor.dims[0]));
    cpu::decode_matrix_row(matrix_of(tensor), 0, values.data());
    return place(values);
  }

  Result<Vector> place(const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    WINNOW_TRY_ASSIGN(std::byte * memory, ops_.allocate(bytes));
    ops_.upload(memory, values.data(), bytes);
    weights_.owned_bytes += bytes;
    return Vector(reinterpret_cast<const float*>(memory), {static_cast<int64_t>(values.size())});
  }

  [[nodiscard]] const TensorInfo* find(std::string_view canonical, int64_t expert = 0) const {
    const bool global =
        canonical == "token_embd.weight" || canonical.starts_with("output.") || canonical == "output_norm.weight";
    const std::string name = global ? std::string(canonical) : concat("blk.", layer_, ".", canonical);
    return checkpoint_.find(gguf_ ? name : hf_name(name, expert).value_or(name));
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& c_;
  Ops& ops_;
  bool gguf_;
  int64_t layer_ = 0;
  ModelWeights weights_;
};

}  // namespace

Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Ops& ops) {
  return Loader(checkpoint, config, ops).load();
}

}  // namespace winnow
