// SPDX-License-Identifier: Apache-2.0
// Launches of the indexer's kernels, one function per compiled family. Private to src/indexer/cuda.
#pragma once

#include <cuda_runtime.h>

#include "core/status.hpp"
#include "indexer/cuda/device.cuh"
#include "indexer/cuda/select_admit.hpp"
#include "indexer/cuda/topk_params.cuh"

namespace winnow::cuda::indexer {

// `tiles` is head_tiles(); the attributes are set by init on each device.
[[nodiscard]] Status launch_decode_fp8(const ScoreParams& params, int tiles, cudaStream_t stream);
[[nodiscard]] Status launch_decode_bf16(const ScoreParams& params, int tiles, cudaStream_t stream);
[[nodiscard]] Status launch_prefill_fp8(const ScoreParams& params, int tiles, cudaStream_t stream);
[[nodiscard]] Status launch_prefill_bf16(const ScoreParams& params, int tiles, cudaStream_t stream);
[[nodiscard]] Status init_decode_fp8();
[[nodiscard]] Status init_decode_bf16();
[[nodiscard]] Status init_prefill_fp8();
[[nodiscard]] Status init_prefill_bf16();

// `overlapped`: the launch may overlap the end of the kernel before it, which is one of this library and the same call.
[[nodiscard]] Status launch_topk_split(const SplitParams& params, int32_t rows, int32_t keys_per_thread,
                                       bool overlapped, bool can_overlap, cudaStream_t stream);
[[nodiscard]] Status launch_topk_level(const TopkParams& params, int32_t rows, int32_t keys_per_thread, bool overlapped,
                                       cudaStream_t stream);
// Whether the code that this device runs may be launched overlapped.
[[nodiscard]] bool topk_can_overlap();

}  // namespace winnow::cuda::indexer
