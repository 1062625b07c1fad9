// SPDX-License-Identifier: Apache-2.0
// score_decode over bf16 keys: the compiled head tiles.
#include "core/checked.hpp"
#include "indexer/cuda/instance.cuh"
#include "indexer/cuda/score_decode.cuh"

namespace winnow::cuda::indexer {
namespace {

template <int kTiles>
Status launch(const ScoreParams& params, cudaStream_t stream) {
  const int64_t ctas = int64_t{params.rows} * params.splits;
  score_decode<Bf16Keys, kTiles><<<static_cast<uint32_t>(ctas), DecodeShape::kWarps * 32,
                                   DecodeShape::shared_bytes(KeyFormat::bf16, kTiles), stream>>>(params);
  return launch_status("score_decode_bf16");
}

template <int kTiles>
Status init() {
  return allow_shared(reinterpret_cast<const void*>(&score_decode<Bf16Keys, kTiles>), "score_decode_bf16",
                      DecodeShape::shared_bytes(KeyFormat::bf16, kTiles));
}

}  // namespace

Status launch_decode_bf16(const ScoreParams& params, int tiles, cudaStream_t stream) {
  switch (tiles) {
    case 1: return launch<1>(params, stream);
    case 2: return launch<2>(params, stream);
    case 4: return launch<4>(params, stream);
    default: return launch<8>(params, stream);
  }
}

Status init_decode_bf16() {
  WINNOW_TRY(init<1>());
  WINNOW_TRY(init<2>());
  WINNOW_TRY(init<4>());
  return init<8>();
}

}  // namespace winnow::cuda::indexer
