// SPDX-License-Identifier: Apache-2.0
// One line of a benchmark: what is run, what it must move and compute, and what it is held against.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "contract/row_format.hpp"
#include "core/status.hpp"
#include "kernels/ceilings.hpp"
#include "kernels/timing.hpp"

namespace winnow::kernels {

enum class BenchOp { mla, select, topk, write };

struct BenchCase {
  BenchOp op = BenchOp::mla;
  RowFormat rows = RowFormat::bf16;
  KeyFormat keys = KeyFormat::fp8;
  int32_t heads = 64;   // query heads, or index heads of select
  int32_t tokens = 64;  // query tokens: batch of a decode step, or queries of a prefill
  int32_t topk = 2048;
  int64_t context = 131072;  // slots that the lists draw from, or positions that a query scores
  int32_t d_rope = 64;
  int32_t page_size = 64;
  bool shared_context = false;  // select: all tokens look at one sequence (prefill), not each at its own (decode)
  bool sorted_slots = false;    // mla: ascending lists, as the selector emits them
  // What the line is held against; 0 means nothing.
  double target_us = 0;
  double target_tflops = 0;
  const char* peer = "";  // what others take, as text
};

struct BenchResult {
  Timing timing;
  double bytes = 0, flop = 0;  // of one launch
  std::string launch;          // tile, splits, shared memory
  [[nodiscard]] double gb_per_s() const { return bytes / timing.median_us * 1e-3; }
  [[nodiscard]] double tflops() const { return flop / timing.median_us * 1e-6; }
};

[[nodiscard]] const char* name_of(BenchOp op);
[[nodiscard]] Result<BenchResult> run_bench(const BenchCase& bench, const TimingPlan& plan, uint64_t seed,
                                            cudaStream_t stream);

}  // namespace winnow::kernels
