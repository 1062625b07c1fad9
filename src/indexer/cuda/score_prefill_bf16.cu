// SPDX-License-Identifier: Apache-2.0
// score_prefill over bf16 keys: the compiled head tiles.
#include "indexer/cuda/score_prefill.cuh"

namespace winnow::cuda::indexer {

Status launch_prefill_bf16(const ScoreParams& params, int tiles, cudaStream_t stream) {
  return launch_prefill<Bf16Keys>("score_prefill_bf16", params, tiles, stream);
}

Status init_prefill_bf16() { return init_prefill<Bf16Keys>("score_prefill_bf16"); }

}  // namespace winnow::cuda::indexer
