// SPDX-License-Identifier: Apache-2.0
// Selection alone: exact top-k of rows of scores that already lie in device memory. What run_select ends with, callable
// by itself for tests and benchmarks.
#pragma once

#include <cstdint>

#include "contract/backend.hpp"
#include "indexer/cuda/select_admit.hpp"

namespace winnow::cuda {

struct TopkRows {
  // [rows, width], rows `pitch` floats apart. 16-byte aligned with a pitch that is a multiple of 4 is fast; then all
  // rows * pitch floats must be readable, though what lies past `width` does not count.
  const float* scores = nullptr;
  int64_t pitch = 0;
  int32_t rows = 0;
  int32_t width = 0;
  const int32_t* len = nullptr;  // [rows] leading scores that count, or null: width
  int32_t topk = 0;              // 1 to 4096
  int32_t* out = nullptr;        // [rows, topk] positions ascending, then -1
  int64_t out_stride = 0;
  int32_t* out_len = nullptr;  // [rows], or null
};

[[nodiscard]] int64_t topk_workspace_bytes(int32_t rows, int32_t width, int32_t topk);
[[nodiscard]] Status run_topk(const TopkRows& rows, const DeviceInfo& device, const Execution& execution);

}  // namespace winnow::cuda
