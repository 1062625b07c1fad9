// SPDX-License-Identifier: Apache-2.0
// score_decode over fp8 keys: the compiled head tiles, with aligned tiles and without.
#include "indexer/cuda/instance.cuh"
#include "indexer/cuda/score_decode.cuh"

namespace winnow::cuda::indexer {
namespace {

template <int kTiles, bool kVector>
Status launch(const ScoreParams& params, cudaStream_t stream) {
  const auto ctas = static_cast<uint32_t>(int64_t{params.rows} * params.splits);
  score_decode<Fp8Keys, kTiles, kVector>
      <<<ctas, DecodeShape::kWarps * 32, DecodeShape::shared_bytes(kTiles), stream>>>(params);
  return launch_status("score_decode_fp8");
}

template <int kTiles>
Status launch(const ScoreParams& params, cudaStream_t stream) {
  return params.key_vector ? launch<kTiles, true>(params, stream) : launch<kTiles, false>(params, stream);
}

template <int kTiles, bool kVector>
Status init() {
  return allow_shared(reinterpret_cast<const void*>(&score_decode<Fp8Keys, kTiles, kVector>), "score_decode_fp8",
                      DecodeShape::shared_bytes(kTiles));
}

template <bool kVector>
Status init_all() {
  WINNOW_TRY((init<1, kVector>()));
  WINNOW_TRY((init<2, kVector>()));
  WINNOW_TRY((init<4, kVector>()));
  return init<8, kVector>();
}

}  // namespace

Status launch_decode_fp8(const ScoreParams& params, int tiles, cudaStream_t stream) {
  switch (tiles) {
    case 1: return launch<1>(params, stream);
    case 2: return launch<2>(params, stream);
    case 4: return launch<4>(params, stream);
    default: return launch<8>(params, stream);
  }
}

Status init_decode_fp8() {
  WINNOW_TRY(init_all<true>());
  return init_all<false>();
}

}  // namespace winnow::cuda::indexer
