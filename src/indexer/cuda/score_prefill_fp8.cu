// SPDX-License-Identifier: Apache-2.0
// score_prefill over fp8 keys: the compiled head tiles.
#include "indexer/cuda/score_prefill.cuh"

namespace winnow::cuda::indexer {

Status launch_prefill_fp8(const ScoreParams& params, int tiles, cudaStream_t stream) {
  return launch_prefill<Fp8Keys>("score_prefill_fp8", params, tiles, stream);
}

Status init_prefill_fp8() { return init_prefill<Fp8Keys>("score_prefill_fp8"); }

}  // namespace winnow::cuda::indexer
