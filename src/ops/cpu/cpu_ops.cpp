// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cpu_ops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.hpp"
#include "core/checked.hpp"
#include "core/threads.hpp"
#include "ops/cpu/decode.hpp"
#include "ops/cpu/products.hpp"
#include "ops/cpu/router.hpp"

namespace winnow {
namespace {

using cpu::Product;

constexpr int64_t kGrainElements = 16 * 1024;  // of elementwise work, a few microseconds

// Rows so that one piece of work has about kGrainElements elements.
int64_t row_grain(int64_t width) { return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(width, 1)); }

template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  parallel_for(rows, row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) body(t);
  });
}

// Sum in sixteen partial sums: vectorisable without reordering that a compiler would have to be allowed.
template <class Term>
float lane_sum(int64_t n, const Term& term) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (; i < n; ++i) lanes[i % kLanes] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

class CpuOps final : public Ops {
 public:
  explicit CpuOps(DeviceInfo device) : device_(std::move(device)) {}

  const DeviceInfo& device() const override { return device_; }

  Result<std::byte*> allocate(int64_t bytes) override {
    WINNOW_TRY_ASSIGN(Buffer buffer, Buffer::allocate(bytes));
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }
  void upload(std::byte* device, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<std::size_t>(bytes));  // no bytes may come from null
  }
  void download(void* host, const std::byte* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<std::size_t>(bytes));
  }

  Result<Matrix> resident(const Matrix& host) override { return host; }

  void embed(const Matrix& table, Indices ids, RowsOut out) override {
    for_rows(ids.size(0), table.in, [&](int64_t t) { cpu::decode_matrix_row(table, ids(t), out.row(t)); });
  }

  void rms_norm(RowsIn x, RowsIn weight, float eps, RowsOut out) override {
    const int64_t n = x.size(1);
    for_rows(x.size(0), n, [&](int64_t t) {
      const float* in = x.row(t);
      float* result = out.row(t);
      const float mean = lane_sum(n, [&](int64_t i) { return in[i] * in[i]; }) / static_cast<float>(n);
      const float factor = 1.0f / std::sqrt(mean + eps);
      for (int64_t i = 0; i < n; ++i) result[i] = weight.data[i] * (in[i] * factor);
    });
  }

  void layer_norm(RowsIn x, RowsIn weight, RowsIn bias, float eps, RowsOut out) override {
    const int64_t n = x.size(1);
    for_rows(x.size(0), n, [&](int64_t t) {
      const float* in = x.row(t);
      float* result = out.row(t);
      const float mean = lane_sum(n, [&](int64_t i) { return in[i]; }) / static_cast<float>(n);
      const float variance =
          lane_sum(n, [&](int64_t i) { return (in[i] - mean) * (in[i] - mean); }) / static_cast<float>(n);
      const float factor = 1.0f / std::sqrt(variance + eps);
      for (int64_t i = 0; i < n; ++i) {
        result[i] = (in[i] - mean) * factor * weight.data[i] + (bias.empty() ? 0.0f : bias.data[i]);
      }
    });
  }

  void linear(RowsIn x, std::span<const LinearProduct> products) override {
    x_rows_.clear();
    out_rows_.clear();
    const int64_t tokens = x.size(0);
    for (int64_t t = 0; t < tokens; ++t) x_rows_.push_back(x.row(t));
    for (const LinearProduct& product : products) {
      WINNOW_DCHECK(product.w->in == x.size(1) && product.w->out == product.out.size(1), "linear ", product.w->out,
                    " x ", product.w->in, " of ", x.size(1), " to ", product.out.size(1));
      for (int64_t t = 0; t < tokens; ++t) out_rows_.push_back(product.out.row(t));
    }
    products_.clear();
    for (std::size_t i = 0; i < products.size(); ++i) {
      products_.push_back(
          {*products[i].w, x_rows_.data(), out_rows_.data() + static_cast<int64_t>(i) * tokens, tokens});
    }
    cpu::run_products(products_, scratch_);
  }

  void head_linear(RowsIn x, std::span<const Matrix> w, RowsOut out) override {
    x_rows_.clear();
    out_rows_.clear();
    const int64_t tokens = x.size(0);
    const auto heads = static_cast<int64_t>(w.size());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        x_rows_.push_back(x.row(t, h));
        out_rows_.push_back(out.row(t, h));
      }
    }
    products_.clear();
    for (int64_t h = 0; h < heads; ++h) {
      products_.push_back({w[h], x_rows_.data() + h * tokens, out_rows_.data() + h * tokens, tokens});
    }
    cpu::run_products(products_, scratch_);
  }

  void rope_angles(Indices positions, RowsIn frequencies, float magnitude, RowsOut cos, RowsOut sin) override {
    const int64_t pairs = cos.size(1);
    for_rows(positions.size(0), pairs * 16, [&](int64_t t) {  // a sine costs as much as sixteen products
      const auto position = static_cast<float>(positions(t));
      for (int64_t j = 0; j < pairs; ++j) {
        const float angle = position * frequencies.data[j];
        cos(t, j) = std::cos(angle) * magnitude;
        sin(t, j) = std::sin(angle) * magnitude;
      }
    });
  }

  void rope(RowsIn x, RowsIn cos, RowsIn sin, RopeLayout layout, RowsOut out) override {
    const int64_t heads = x.size(1), pairs = x.size(2) / 2;
    const bool interleaved = layout == RopeLayout::interleaved;
    for_rows(x.size(0), heads * pairs * 2, [&](int64_t t) {
      const float* c = cos.row(t);
      const float* s = sin.row(t);
      for (int64_t h = 0; h < heads; ++h) {
        const float* in = x.row(t, h);
        float* result = out.row(t, h);
        for (int64_t j = 0; j < pairs; ++j) {
          const int64_t a = interleaved ? 2 * j : j;
          const int64_t b = interleaved ? 2 * j + 1 : j + pairs;
          const float u = in[a], v = in[b];
          result[a] = u * c[j] - v * s[j];
          result[b] = u * s[j] + v * c[j];
        }
      }
    });
  }

  void swiglu(RowsIn gate, RowsIn up, RowsOut out) override {
    const int64_t n = gate.size(1);
    for_rows(gate.size(0), n * 8, [&](int64_t t) {  // the exponential costs as much as eight products
      for (int64_t i = 0; i < n; ++i) {
        const float g = gate(t, i);
        out(t, i) = g / (1.0f + std::exp(-g)) * up(t, i);
      }
    });
  }

  void add(RowsIn y, RowsOut x) override {
    const int64_t n = x.size(1);
    for_rows(x.size(0), n, [&](int64_t t) {
      const float* in = y.row(t);
      float* result = x.row(t);
      for (int64_t i = 0; i < n; ++i) result[i] += in[i];
    });
  }

  void fill(float value, RowsOut x) override {
    for_rows(x.size(0), x.size(1), [&](int64_t t) { std::fill_n(x.row(t), x.size(1), value); });
  }

  void scale(float factor, RowsOut x) override {
    const int64_t n = x.size(1);
    for_rows(x.size(0), n, [&](int64_t t) {
      float* row = x.row(t);
      for (int64_t i = 0; i < n; ++i) row[i] *= factor;
    });
  }

  void gather(RowsIn x, Indices rows, RowsOut out) override {
    const int64_t n = x.size(1);
    for_rows(rows.size(0), n, [&](int64_t i) { std::copy_n(x.row(rows(i)), n, out.row(i)); });
  }

  void route(RowsIn x, const Matrix& gate, RowsIn bias, const RouterOptions& options, TensorView<int32_t> ids,
             RowsOut weights) override {
    const int64_t tokens = x.size(0);
    router_logits_.resize(static_cast<std::size_t>(tokens * gate.out));
    Ops::linear(x, gate, {router_logits_.data(), {tokens, gate.out}});
    parallel_for(tokens, row_grain(gate.out * 16), [&](int64_t begin, int64_t end, int) {
      cpu::RouterScratch scratch;
      for (int64_t t = begin; t < end; ++t) {
        cpu::choose_experts(router_logits_.data() + t * gate.out, bias.data, gate.out, options, scratch, ids.row(t),
                            weights.row(t));
      }
    });
  }

  void experts(RowsIn x, Indices ids, RowsIn weights, const ExpertMatrices& m, RowsOut out) override {
    group_by_expert(ids, weights, static_cast<int64_t>(m.down.size()));
    const auto entries = static_cast<int64_t>(entries_.size());
    if (entries == 0) return;
    const int64_t width = m.down.front().in;
    gate_rows_.resize(static_cast<std::size_t>(entries * width));
    up_rows_.resize(gate_rows_.size());
    first_half(x, m, width);
    const RowsOut gate(gate_rows_.data(), {entries, width});
    swiglu(gate, RowsIn(up_rows_.data(), {entries, width}), gate);
    second_half(m, width, out);
  }

  void note_not_finite(RowsIn x, int32_t where) override {
    if (not_finite_.where >= 0) return;
    constexpr uint32_t kExponent = 0x7F800000u;
    for (int64_t t = 0; t < x.size(0); ++t) {
      const float* row = x.row(t);
      uint32_t largest = 0;
      for (int64_t i = 0; i < x.size(1); ++i) {
        largest = std::max(largest, std::bit_cast<uint32_t>(row[i]) & 0x7FFFFFFFu);
      }
      if (largest < kExponent) continue;
      not_finite_ = {where, static_cast<int32_t>(t)};
      return;
    }
  }

  Result<NotFinite> finish() override { return std::exchange(not_finite_, NotFinite{}); }

 private:
  struct Entry {  // one token of one expert
    int64_t token;
    float weight;
  };

  // entries_ sorted by expert, then token; expert e has [begin_[e], begin_[e + 1]).
  void group_by_expert(Indices ids, RowsIn weights, int64_t experts) {
    begin_.assign(static_cast<std::size_t>(experts) + 1, 0);
    for (int64_t t = 0; t < ids.size(0); ++t) {
      for (int64_t k = 0; k < ids.size(1); ++k) ++begin_[ids(t, k) + 1];
    }
    for (int64_t e = 0; e < experts; ++e) begin_[e + 1] += begin_[e];
    std::vector<int64_t> next(begin_.begin(), begin_.end() - 1);
    entries_.resize(static_cast<std::size_t>(begin_.back()));
    for (int64_t t = 0; t < ids.size(0); ++t) {
      for (int64_t k = 0; k < ids.size(1); ++k) entries_[next[ids(t, k)]++] = {t, weights(t, k)};
    }
  }

  // gate and up of every entry, all experts in one parallel region.
  void first_half(RowsIn x, const ExpertMatrices& m, int64_t width) {
    const auto entries = static_cast<int64_t>(entries_.size());
    x_rows_.clear();
    out_rows_.clear();
    for (const Entry& entry : entries_) x_rows_.push_back(x.row(entry.token));
    for (int64_t i = 0; i < entries; ++i) out_rows_.push_back(gate_rows_.data() + i * width);
    for (int64_t i = 0; i < entries; ++i) out_rows_.push_back(up_rows_.data() + i * width);
    products_.clear();
    for (std::size_t e = 0; e < m.down.size(); ++e) {
      const int64_t first = begin_[e], count = begin_[e + 1] - first;
      if (count == 0) continue;
      products_.push_back({m.gate[e], x_rows_.data() + first, out_rows_.data() + first, count});
      products_.push_back({m.up[e], x_rows_.data() + first, out_rows_.data() + entries + first, count});
    }
    cpu::run_products(products_, scratch_);
  }

  // Columns of `out` are handed out; each worker adds all experts to its columns in ascending order, so that the sum
  // does not depend on who is faster and no [entries, hidden] buffer exists.
  void second_half(const ExpertMatrices& m, int64_t width, RowsOut out) {
    const auto entries = static_cast<int64_t>(entries_.size());
    int64_t largest = 0;
    for (std::size_t e = 0; e < m.down.size(); ++e) largest = std::max(largest, begin_[e + 1] - begin_[e]);
    const int64_t columns = m.down.front().out;
    const int64_t grain = cpu::panel_rows(m.down.front(), std::max<int64_t>(1, largest));
    const int64_t panel = cpu::panel_floats(m.down.front());
    scratch_.reserve(panel + largest * grain);
    x_rows_.clear();
    for (int64_t i = 0; i < entries; ++i) x_rows_.push_back(gate_rows_.data() + i * width);
    parallel_for(ceil_div(columns, grain), 1, [&](int64_t begin, int64_t end, int worker) {
      float* tile = scratch_.of(worker) + panel;
      std::vector<float*> tile_rows(static_cast<std::size_t>(largest));
      for (int64_t i = 0; i < largest; ++i) tile_rows[i] = tile + i * grain;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t first = item * grain, count = std::min(grain, columns - first);
        add_down(m, first, count, tile_rows, scratch_.of(worker), out);
      }
    });
  }

  void add_down(const ExpertMatrices& m, int64_t first, int64_t count, std::vector<float*>& tile, float* panel,
                RowsOut out) const {
    for (std::size_t e = 0; e < m.down.size(); ++e) {
      const int64_t begin = begin_[e], tokens = begin_[e + 1] - begin;
      if (tokens == 0) continue;
      const Product product{m.down[e].rows(first, count), x_rows_.data() + begin, tile.data(), tokens};
      cpu::run_rows(product, 0, count, panel);
      for (int64_t i = 0; i < tokens; ++i) {
        const Entry& entry = entries_[begin + i];
        float* row = out.row(entry.token) + first;
        for (int64_t c = 0; c < count; ++c) row[c] += entry.weight * tile[i][c];
      }
    }
  }

  DeviceInfo device_;
  std::vector<Buffer> buffers_;
  cpu::WorkerScratch scratch_;
  NotFinite not_finite_;
  std::vector<const float*> x_rows_;
  std::vector<float*> out_rows_;
  std::vector<Product> products_;
  std::vector<float> router_logits_, gate_rows_, up_rows_;
  std::vector<int64_t> begin_;
  std::vector<Entry> entries_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(DeviceInfo device) { return std::make_unique<CpuOps>(std::move(device)); }

}  // namespace winnow
