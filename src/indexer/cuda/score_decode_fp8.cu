// SPDX-License-Identifier: Apache-2.0
// score_decode over fp8 keys: the compiled head tiles, with aligned tiles and without.
#include "indexer/cuda/score_decode.cuh"

namespace winnow::cuda::indexer {

Status launch_decode_fp8(const ScoreParams& params, int tiles, cudaStream_t stream) {
  return launch_decode<Fp8Keys>("score_decode_fp8", params, tiles, stream);
}

Status init_decode_fp8() { return init_decode<Fp8Keys>("score_decode_fp8"); }

}  // namespace winnow::cuda::indexer
