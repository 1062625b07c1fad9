// SPDX-License-Identifier: Apache-2.0
// score_decode over bf16 keys: the compiled head tiles, with aligned tiles and without.
#include "indexer/cuda/score_decode.cuh"

namespace winnow::cuda::indexer {

Status launch_decode_bf16(const ScoreParams& params, int tiles, cudaStream_t stream) {
  return launch_decode<Bf16Keys>("score_decode_bf16", params, tiles, stream);
}

Status init_decode_bf16() { return init_decode<Bf16Keys>("score_decode_bf16"); }

}  // namespace winnow::cuda::indexer
