// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/products.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/checked.hpp"
#include "core/threads.hpp"
#include "ops/cpu/decode.hpp"
#include "ops/cpu/kernels.hpp"

namespace winnow::cpu {
namespace {

constexpr int64_t kFewTokens = 3;
constexpr int64_t kPanelFloats = 64 * 1024;  // 256 KB: half of the smallest second-level cache still in use
constexpr int64_t kMinPanelRows = 16, kMaxPanelRows = 64;
constexpr int64_t kGrainMacs = 32 * 1024;  // about a microsecond, which is what handing out work costs

bool reads_in_place(const Product& p) { return p.tokens <= kFewTokens && decodes_on_the_fly(p.w.type); }

void run_in_place(const Product& p, int64_t first, int64_t rows) {
  const ProductKernels& kernels = product_kernels();
  for (int64_t r = first; r < first + rows; r += kRowGroup) {
    const int count = static_cast<int>(std::min<int64_t>(kRowGroup, first + rows - r));
    for (int64_t t = 0; t < p.tokens; ++t) {
      kernels.dot_rows(p.w.type, p.w.row(r), p.w.row_bytes, count, p.x[t], p.w.in, p.out[t] + r);
    }
  }
}

bool is_float(const Matrix& w) { return w.type == StorageType::F32 && w.row_bytes % sizeof(float) == 0; }

}  // namespace

void WorkerScratch::reserve(int64_t floats) {
  const auto workers = static_cast<std::size_t>(threads());
  if (buffers_.size() < workers) buffers_.resize(workers);
  for (Buffer& buffer : buffers_) {
    const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
    if (buffer.bytes() >= bytes) continue;
    Result<Buffer> grown = Buffer::allocate(bytes);
    WINNOW_CHECK(grown.ok(), grown.status().message());
    buffer = std::move(grown).value();
  }
}

// Enough rows that handing them out is worth it, few enough that every thread finds several panels, and no more than a
// panel of floats holds.
int64_t panel_rows(const Matrix& w, int64_t tokens) {
  const int64_t enough = ceil_div(kGrainMacs, w.in * std::max<int64_t>(tokens, 1));
  const int64_t spread = std::clamp<int64_t>(w.out / (4 * threads()), kMinPanelRows, kMaxPanelRows);
  const int64_t fits = std::max<int64_t>(kPanelFloats / w.in, kRowGroup);
  return std::min(std::max(enough, spread), fits) / kRowGroup * kRowGroup;
}

int64_t panel_floats(const Matrix& w) { return std::max(kPanelFloats, kRowGroup * w.in); }

void run_rows(const Product& p, int64_t first, int64_t rows, float* panel) {
  if (reads_in_place(p)) return run_in_place(p, first, rows);
  if (is_float(p.w)) {
    const auto* w = reinterpret_cast<const float*>(p.w.row(first));
    product_kernels().panel(w, p.w.row_bytes / static_cast<int64_t>(sizeof(float)), rows, p.x, p.tokens, p.w.in, p.out,
                            first);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) decode_matrix_row(p.w, first + r, panel + r * p.w.in);
  product_kernels().panel(panel, p.w.in, rows, p.x, p.tokens, p.w.in, p.out, first);
}

void run_products(std::span<const Product> products, WorkerScratch& scratch) {
  int64_t floats = 0;
  std::vector<int64_t> end(products.size());  // items of products up to and including i
  int64_t items = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    if (p.tokens > 0) items += ceil_div(p.w.out, panel_rows(p.w, p.tokens));
    end[i] = items;
    floats = std::max(floats, panel_floats(p.w));
  }
  scratch.reserve(floats);
  parallel_for(items, 1, [&](int64_t begin, int64_t last, int worker) {
    auto i = static_cast<std::size_t>(std::upper_bound(end.begin(), end.end(), begin) - end.begin());
    for (int64_t item = begin; item < last; ++item) {
      while (item >= end[i]) ++i;
      const Product& p = products[i];
      const int64_t size = panel_rows(p.w, p.tokens);
      const int64_t first = (item - (i == 0 ? 0 : end[i - 1])) * size;
      run_rows(p, first, std::min(size, p.w.out - first), scratch.of(worker));
    }
  });
}

}  // namespace winnow::cpu
