// SPDX-License-Identifier: Apache-2.0
// Products of stored matrices with rows of activations: the driver over the SIMD kernels.
//
// One to three tokens: weights are decoded in registers, so a product runs at the speed at which weights are read. More
// tokens: a panel of rows is decoded once, to float, and multiplied with all tokens. Work is handed out by output rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.hpp"
#include "ops/matrix.hpp"

namespace winnow::cpu {

struct Product {
  Matrix w;
  const float* const* x = nullptr;  // [tokens] rows of w.in floats
  float* const* out = nullptr;      // [tokens] rows of w.out floats
  int64_t tokens = 0;
};

// Floats per worker that grow when asked and are never given back.
class WorkerScratch {
 public:
  // Before a parallel region, from one thread: room for every worker. Aborts when memory is refused: scratch is a few
  // hundred KB a worker, far below what a plan accounts for.
  void reserve(int64_t floats);
  [[nodiscard]] float* of(int worker) const { return buffers_[static_cast<std::size_t>(worker)].as<float>(); }

 private:
  std::vector<Buffer> buffers_;
};

void run_products(std::span<const Product> products, WorkerScratch& scratch);

// Rows of w [first, first + rows) times all tokens, from any one worker; panel has room for panel_floats(w).
void run_rows(const Product& product, int64_t first, int64_t rows, float* panel);
[[nodiscard]] int64_t panel_rows(const Matrix& w, int64_t tokens);
[[nodiscard]] int64_t panel_floats(const Matrix& w);

}  // namespace winnow::cpu
