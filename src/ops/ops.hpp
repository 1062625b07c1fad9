// SPDX-License-Identifier: Apache-2.0
// Ops: the small set of operations that a forward pass is written in. One implementation per device.
//
// Activations are float32 rows in memory of the device, named by views; the host never looks at them except through
// download(). Operations are queued in order and return nothing: the first failure (a launch, memory) stays and comes
// back from finish(), which also waits. On a CPU every operation is complete when it returns.
//
// Arithmetic: products of stored weights with float32 activations accumulate in float32. The order of summation of one
// output element never depends on the number of threads; whether it depends on the number of rows of x is the
// implementation's to say (cpu: it does not). In a call with 0 rows nothing happens.
#pragma once

#include <cstdint>
#include <span>

#include "contract/device_info.hpp"
#include "core/status.hpp"
#include "core/tensor_view.hpp"
#include "ops/matrix.hpp"
#include "ops/rope_layout.hpp"

namespace winnow {

struct RouterOptions {
  bool sigmoid = true;  // false: softmax over all experts
  int64_t experts_used = 1;
  int64_t groups = 1, groups_used = 1;  // groups of consecutive experts; a group scores the sum of its two best
  bool normalise = true;                // chosen weights sum to 1 before scale
  float scale = 1;
};

struct ExpertMatrices {
  std::span<const Matrix> gate, up;  // [experts] of [width, hidden]
  std::span<const Matrix> down;      // [experts] of [hidden, width]
};

using RowsIn = TensorView<const float>;
using RowsOut = TensorView<float>;
using Indices = TensorView<const int32_t>;

struct LinearProduct {
  const Matrix* w = nullptr;  // [out, in]
  RowsOut out;                // [tokens, out]
};

class Ops {
 public:
  virtual ~Ops() = default;
  [[nodiscard]] virtual const DeviceInfo& device() const = 0;

  // Memory of the device, zeroed, 64-byte aligned, alive as long as this object; out_of_memory when refused.
  [[nodiscard]] virtual Result<std::byte*> allocate(int64_t bytes) = 0;
  virtual void upload(std::byte* device, const void* host, int64_t bytes) = 0;
  virtual void download(void* host, const std::byte* device, int64_t bytes) = 0;
  // The same matrix where operations can read it: itself on a CPU, which reads the mapped file, a copy elsewhere.
  [[nodiscard]] virtual Result<Matrix> resident(const Matrix& host) = 0;

  // out[t] = row ids[t] of table. ids must be valid.
  virtual void embed(const Matrix& table, Indices ids, RowsOut out) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight. out may be x.
  virtual void rms_norm(RowsIn x, RowsIn weight, float eps, RowsOut out) = 0;
  // out = (x - mean) / sqrt(variance + eps) * weight + bias, biased variance; bias may be empty. out may be x.
  virtual void layer_norm(RowsIn x, RowsIn weight, RowsIn bias, float eps, RowsOut out) = 0;

  // out[t] = w x[t];  x [tokens, in], out [tokens, out]. out is not x. Several products of one x may run as one.
  virtual void linear(RowsIn x, std::span<const LinearProduct> products) = 0;
  void linear(RowsIn x, const Matrix& w, RowsOut out) {
    const LinearProduct product{&w, out};
    linear(x, {&product, 1});
  }
  // out[t,h] = w[h] x[t,h];  x [tokens, heads, in], out [tokens, heads, out].
  virtual void head_linear(RowsIn x, std::span<const Matrix> w, RowsOut out) = 0;

  // cos[t,j], sin[t,j] of float(position[t]) * frequencies[j], times magnitude; all in float32.
  virtual void rope_angles(Indices positions, RowsIn frequencies, float magnitude, RowsOut cos, RowsOut sin) = 0;
  // out[t,h] = x[t,h] rotated;  x [tokens, heads, width], cos and sin [tokens, width / 2]. out may be x.
  virtual void rope(RowsIn x, RowsIn cos, RowsIn sin, RopeLayout layout, RowsOut out) = 0;

  // out = silu(gate) * up, element by element. out may be gate or up.
  virtual void swiglu(RowsIn gate, RowsIn up, RowsOut out) = 0;
  // x += y.
  virtual void add(RowsIn y, RowsOut x) = 0;
  // Every element of x becomes value.
  virtual void fill(float value, RowsOut x) = 0;
  // x *= factor.
  virtual void scale(float factor, RowsOut x) = 0;
  // out[i] = x[rows[i]].
  virtual void gather(RowsIn x, Indices rows, RowsOut out) = 0;

  // Chooses experts for every row (the bias moves the choice only, never the weight: DeepSeek-V3 report, noaux_tc).
  // gate [experts, hidden]; bias [experts] or empty; ids and weights [tokens, experts_used].
  // A NaN score is below every number, ties go to the lower expert.
  virtual void route(RowsIn x, const Matrix& gate, RowsIn bias, const RouterOptions& options, TensorView<int32_t> ids,
                     RowsOut weights) = 0;
  // out[t] += sum over e in ids[t] of weight * down_e(silu(gate_e x[t]) * (up_e x[t])), experts in ascending order.
  virtual void experts(RowsIn x, Indices ids, RowsIn weights, const ExpertMatrices& matrices, RowsOut out) = 0;

  // Remembers `where` and the row of the first value that is NaN or infinite, if nothing was remembered before.
  virtual void note_not_finite(RowsIn x, int32_t where) = 0;

  struct NotFinite {
    int32_t where = -1, row = -1;  // -1: every noted value was finite
  };
  // Waits for everything queued and returns the first failure, or what note_not_finite remembered; forgets both.
  [[nodiscard]] virtual Result<NotFinite> finish() = 0;
};

}  // namespace winnow
