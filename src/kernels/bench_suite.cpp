// SPDX-License-Identifier: Apache-2.0
// Peers, measured on one H200 on 2026-11-29 with graphs of 20 launches, bf16 queries, 2048 random slots of 131072:
// "Triton" is the portable sparse-MLA backend proposed to vLLM in pull request 38476 (bf16 rows), "FlashMLA" the SM90
// kernels of deepseek-ai/FlashMLA at 9241ae3 (fp8 rows for decode, bf16 for prefill; 64 or 128 heads), "torch"
// torch.topk and torch.compile of the score formula.
#include "kernels/bench_suite.hpp"

namespace winnow::kernels {
namespace {

BenchCase decode(RowFormat rows, int32_t heads, int32_t batch, double target_us, const char* peer) {
  return {.op = BenchOp::mla, .rows = rows, .heads = heads, .tokens = batch, .target_us = target_us, .peer = peer};
}

BenchCase prefill(RowFormat rows, int32_t heads, int32_t queries, int64_t context, double target_tflops,
                  const char* peer) {
  return {.op = BenchOp::mla,
          .rows = rows,
          .heads = heads,
          .tokens = queries,
          .context = context,
          .target_tflops = target_tflops,
          .peer = peer};
}

BenchCase select(KeyFormat keys, int32_t heads, int32_t tokens, int64_t context, bool shared, double target_us,
                 const char* peer) {
  return {.op = BenchOp::select,
          .keys = keys,
          .heads = heads,
          .tokens = tokens,
          .context = context,
          .shared_context = shared,
          .target_us = target_us,
          .peer = peer};
}

BenchCase topk(int32_t rows, int64_t context, double target_us, const char* peer) {
  return {.op = BenchOp::topk, .tokens = rows, .context = context, .target_us = target_us, .peer = peer};
}

BenchCase write(RowFormat rows, KeyFormat keys, int32_t tokens) {
  return {.op = BenchOp::write, .rows = rows, .keys = keys, .tokens = tokens};
}

}  // namespace

std::vector<BenchCase> peers_suite() {
  constexpr RowFormat kBf16 = RowFormat::bf16, kFp8 = RowFormat::v32_fp8;
  return {
      decode(kBf16, 8, 1, 0, "Triton 13.6"),
      decode(kBf16, 8, 16, 0, "Triton 27.0"),
      decode(kBf16, 8, 64, 53, "Triton 223"),
      decode(kBf16, 8, 128, 0, "Triton 228"),
      decode(kBf16, 8, 256, 190, "Triton 305"),
      decode(kBf16, 16, 64, 58, "Triton 227"),
      decode(kBf16, 32, 64, 58, "Triton 228"),
      decode(kBf16, 32, 256, 220, "Triton 608"),
      decode(kBf16, 64, 1, 0, "Triton 15.1"),
      decode(kBf16, 64, 4, 0, "Triton 25.1"),
      decode(kBf16, 64, 16, 0, "Triton 216"),
      decode(kBf16, 64, 64, 58, "Triton 290"),
      decode(kBf16, 64, 128, 0, "Triton 576"),
      decode(kBf16, 64, 256, 220, "Triton 1190"),
      decode(kBf16, 128, 64, 0, "Triton 567"),
      decode(kBf16, 128, 256, 0, "Triton 2352"),
      decode(kFp8, 8, 1, 8, "FlashMLA padded 16.8"),
      decode(kFp8, 8, 16, 0, "FlashMLA padded 27.9"),
      decode(kFp8, 8, 64, 42, "FlashMLA padded 71.7"),
      decode(kFp8, 8, 128, 0, "FlashMLA padded 109"),
      decode(kFp8, 8, 256, 0, "FlashMLA padded 215"),
      decode(kFp8, 16, 64, 0, "FlashMLA padded 71.7"),
      decode(kFp8, 32, 64, 0, "FlashMLA padded 71.7"),
      decode(kFp8, 32, 256, 0, "FlashMLA padded 215"),
      decode(kFp8, 64, 1, 0, "FlashMLA 16.8"),
      decode(kFp8, 64, 4, 0, "FlashMLA 16.9"),
      decode(kFp8, 64, 16, 0, "FlashMLA 27.9"),
      decode(kFp8, 64, 64, 0, "FlashMLA 71.7"),
      decode(kFp8, 64, 128, 0, "FlashMLA 109"),
      decode(kFp8, 64, 256, 0, "FlashMLA 215"),
      decode(kFp8, 128, 64, 0, "FlashMLA 94.6"),
      decode(kFp8, 128, 256, 0, "FlashMLA 368"),
      prefill(kBf16, 64, 1024, 8192, 0, "Triton 65 TF, FlashMLA 555 TF"),
      prefill(kBf16, 64, 4096, 32768, 320, "Triton 66 TF, FlashMLA 540 TF"),
      prefill(kBf16, 64, 4096, 131072, 0, "Triton 64 TF, FlashMLA 458 TF"),
      prefill(kBf16, 128, 4096, 32768, 0, "Triton 66 TF, FlashMLA 562 TF"),
      prefill(kBf16, 128, 4096, 131072, 0, "Triton 64 TF, FlashMLA 510 TF"),
      prefill(kFp8, 64, 4096, 32768, 0, ""),
      select(KeyFormat::fp8, 32, 64, 32768, false, 130, ""),
      select(KeyFormat::fp8, 32, 4, 131072, false, 45, ""),
      select(KeyFormat::fp8, 64, 64, 32768, false, 0, ""),
      select(KeyFormat::fp8, 64, 4, 131072, false, 0, ""),
      select(KeyFormat::fp8, 32, 1, 1048576, false, 0, ""),
      select(KeyFormat::fp8, 32, 1024, 32768, true, 1200, "torch.compile scores alone 3240"),
      select(KeyFormat::bf16, 32, 64, 32768, false, 0, ""),
      select(KeyFormat::bf16, 32, 1024, 32768, true, 0, "torch.compile scores alone 3240"),
      topk(1, 131072, 0, "torch.topk 122"),
      topk(4, 131072, 131.0 / 4, "torch.topk 131, a quarter wanted"),
      topk(64, 32768, 127.0 / 4, "torch.topk 127, a quarter wanted"),
      topk(64, 131072, 0, "torch.topk 168"),
      topk(256, 16384, 0, "torch.topk 121"),
      topk(1024, 32768, 0, "torch.topk 490"),
      write(kBf16, KeyFormat::bf16, 64),
      write(kFp8, KeyFormat::fp8, 64),
      write(kBf16, KeyFormat::bf16, 4096),
      write(kFp8, KeyFormat::fp8, 4096),
  };
}

}  // namespace winnow::kernels
