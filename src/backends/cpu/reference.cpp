// SPDX-License-Identifier: Apache-2.0
// cpu.reference: the contract in float, one obvious loop after the other, on one thread. It exists to be read, and to
// be slow in a way that nobody doubts; the float64 oracle of src/contract judges it like every other backend.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/admission.hpp"
#include "backends/cpu/cpu_backends.hpp"
#include "backends/cpu/decode.hpp"
#include "indexer/topk.hpp"

namespace winnow {
namespace cpu {
namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> decode_row(const SparseMlaProblem& p, const std::byte* row) {
  std::vector<float> values(static_cast<std::size_t>(p.d_qk()));
  const RowLayout layout = row_layout(p.rows, p.d_nope, p.d_rope);
  for (int64_t d = 0; d < p.d_nope; ++d) {
    float& value = values[static_cast<std::size_t>(d)];
    switch (p.rows) {
      case RowFormat::f32: value = load<float>(row, d); break;
      case RowFormat::bf16: value = to_float(load<bf16>(row, d)); break;
      case RowFormat::v32_fp8:
        value = to_float(load<e4m3>(row, d)) * load<float>(row + layout.scales, d / kLatentsPerScale);
        break;
    }
  }
  for (int64_t d = 0; d < p.d_rope; ++d) {
    values[static_cast<std::size_t>(p.d_nope + d)] = element(row + layout.rope, rope_type(p.rows), d);
  }
  return values;
}

using Rows = std::vector<std::vector<float>>;

Rows rows_of_token(const SparseMlaProblem& p, const SparseMlaBuffers& b, int64_t token) {
  const int64_t listed = b.topk_len.empty() ? p.topk : std::clamp(b.topk_len(token), 0, p.topk);
  Rows rows;
  for (int64_t i = 0; i < listed; ++i) {
    const std::byte* row = row_of(b.cache, p.page_size, b.topk_slots(token, i));
    if (row != nullptr) rows.push_back(decode_row(p, row));
  }
  return rows;
}

// exp(score - lse) of every row; lse is -inf and nothing is written when no score is above -inf.
float softmax(const SparseMlaProblem& p, const std::vector<float>& q, const Rows& rows, std::vector<float>& weight) {
  float top = -kInf;
  for (const auto& row : rows) {
    weight.push_back(p.softmax_scale * std::inner_product(q.begin(), q.end(), row.begin(), 0.0f));
    top = std::max(top, weight.back());  // a NaN is passed over here and reaches the sum below
  }
  if (top == -kInf && std::none_of(weight.begin(), weight.end(), [](float s) { return std::isnan(s); })) return -kInf;
  float sum = 0;
  for (float& w : weight) sum += w = std::exp(w - top);
  for (float& w : weight) w /= sum;
  return top + std::log(sum);
}

void store(const HeadTensor& out, DType type, int64_t index, float value) {
  if (type == DType::f32) {
    static_cast<float*>(out.data)[index] = value;
  } else {
    static_cast<bf16*>(out.data)[index] = to_bf16(value);
  }
}

void attend(const SparseMlaProblem& p, const SparseMlaBuffers& b, int64_t token, int64_t head, const Rows& rows) {
  std::vector<float> out(static_cast<std::size_t>(p.d_v), 0.0f);
  float lse = -kInf;
  if (!rows.empty()) {
    std::vector<float> q(static_cast<std::size_t>(p.d_qk()));
    for (int64_t d = 0; d < p.d_qk(); ++d) {
      q[static_cast<std::size_t>(d)] =
          element(b.q.data, p.activations, token * b.q.token_stride + head * b.q.head_stride + d);
    }
    std::vector<float> weight;
    lse = softmax(p, q, rows, weight);
    if (lse != -kInf) {
      const float factor = b.sink.empty() ? 1.0f : 1.0f / (1.0f + std::exp(b.sink(head) - lse));
      for (std::size_t j = 0; j < rows.size(); ++j) {
        for (std::size_t d = 0; d < out.size(); ++d) out[d] += factor * weight[j] * rows[j][d];
      }
    }
  }
  for (int64_t d = 0; d < p.d_v; ++d) {
    store(b.out, p.activations, token * b.out.token_stride + head * b.out.head_stride + d,
          out[static_cast<std::size_t>(d)]);
  }
  if (!b.lse.empty()) b.lse(token, head) = lse;
}

Status run_mla(const Backend& backend, const SparseMlaProblem& p, const SparseMlaBuffers& b, const DeviceInfo& device,
               const Execution&) {
  WINNOW_TRY(refused(backend.name, admits_mla(backend, p, device)));
  WINNOW_TRY(check(p, b));
  for (int64_t t = 0; t < p.tokens; ++t) {
    const Rows rows = rows_of_token(p, b, t);
    for (int64_t h = 0; h < p.q_heads; ++h) attend(p, b, t, h, rows);
  }
  return Status();
}

float index_score(const IndexSelectProblem& p, const IndexSelectBuffers& b, int64_t token, int64_t position) {
  const int64_t page = b.page_table(b.seq(token), position / p.page_size);
  if (page < 0 || page >= b.keys.pages) return std::numeric_limits<float>::quiet_NaN();
  const std::byte* base = b.keys.data + page * b.keys.page_stride_bytes;
  const int64_t offset = position % p.page_size;
  float score = 0;
  for (int64_t h = 0; h < p.index_heads; ++h) {
    float dot = 0;
    for (int64_t d = 0; d < p.index_dim; ++d) {
      dot += element(b.q.data, p.q_type, token * b.q.token_stride + h * b.q.head_stride + d) *
             element(base, key_type(p.keys), offset * p.index_dim + d);
    }
    score += b.weight(token, h) * (dot > 0 ? dot : 0.0f);
  }
  return p.keys == KeyFormat::fp8 ? score * load<float>(base + p.page_size * p.index_dim, offset) : score;
}

// Positions chosen for one token, by sorting all of them.
std::vector<int32_t> select_positions(const IndexSelectProblem& p, const IndexSelectBuffers& b, int64_t token) {
  const int64_t start = b.start.empty() ? 0 : b.start(token);
  const int64_t first = std::clamp<int64_t>(start, 0, p.max_len);
  const int64_t last = std::clamp<int64_t>(start + b.len(token), first, p.max_len);
  std::vector<int32_t> positions(static_cast<std::size_t>(last - first));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  if (last - first <= p.topk) return positions;
  std::vector<uint64_t> keys;
  keys.reserve(positions.size());
  for (int32_t position : positions) keys.push_back(topk_key(index_score(p, b, token, position), position));
  std::sort(keys.begin(), keys.end());
  positions.resize(static_cast<std::size_t>(p.topk));
  std::transform(keys.begin(), keys.begin() + p.topk, positions.begin(), topk_position);
  std::sort(positions.begin(), positions.end());
  return positions;
}

Status run_select(const Backend& backend, const IndexSelectProblem& p, const IndexSelectBuffers& b,
                  const DeviceInfo& device, const Execution&) {
  WINNOW_TRY(refused(backend.name, admits_select(backend, p, device)));
  WINNOW_TRY(check(p, b));
  for (int64_t t = 0; t < p.tokens; ++t) {
    std::vector<int32_t> chosen;
    const int64_t sequence = b.seq(t);
    if (b.page_table.rank == 2 && sequence >= 0 && sequence < b.page_table.size(0)) chosen = select_positions(p, b, t);
    for (int64_t i = 0; i < p.topk; ++i) {
      int32_t entry = i < static_cast<int64_t>(chosen.size()) ? chosen[static_cast<std::size_t>(i)] : -1;
      if (entry >= 0 && p.output_slots) {
        const int64_t page = b.page_table(sequence, entry / p.page_size);
        entry = page < 0 || page >= b.keys.pages ? -1 : static_cast<int32_t>(page * p.page_size + entry % p.page_size);
      }
      b.out(t, i) = entry;
    }
    if (!b.out_len.empty()) b.out_len(t) = static_cast<int32_t>(chosen.size());
  }
  return Status();
}

}  // namespace
}  // namespace cpu

const Backend& cpu_reference_backend() {
  static const Backend backend{.name = "cpu.reference",
                               .kind = DeviceKind::cpu,
                               .admits_mla = cpu::admits_mla,
                               .run_mla = cpu::run_mla,
                               .admits_select = cpu::admits_select,
                               .run_select = cpu::run_select,
                               .admits_write = cpu::admits_write,
                               .run_write = cpu::run_write};
  return backend;
}

}  // namespace winnow
