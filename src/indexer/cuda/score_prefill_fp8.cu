// SPDX-License-Identifier: Apache-2.0
// score_prefill over fp8 keys: the compiled head tiles.
#include "core/checked.hpp"
#include "indexer/cuda/instance.cuh"
#include "indexer/cuda/score_prefill.cuh"

namespace winnow::cuda::indexer {
namespace {

template <int kTiles>
Status launch(const ScoreParams& params, cudaStream_t stream) {
  const int64_t ctas = int64_t{ceil_div(params.rows, PrefillShape::queries(kTiles))} * params.splits;
  score_prefill<Fp8Keys, kTiles>
      <<<static_cast<uint32_t>(ctas), PrefillShape::kWarps * 32, PrefillShape::shared_bytes(kTiles), stream>>>(params);
  return launch_status("score_prefill_fp8");
}

template <int kTiles>
Status init() {
  return allow_shared(reinterpret_cast<const void*>(&score_prefill<Fp8Keys, kTiles>), "score_prefill_fp8",
                      PrefillShape::shared_bytes(kTiles));
}

}  // namespace

Status launch_prefill_fp8(const ScoreParams& params, int tiles, cudaStream_t stream) {
  switch (tiles) {
    case 1: return launch<1>(params, stream);
    case 2: return launch<2>(params, stream);
    case 4: return launch<4>(params, stream);
    default: return launch<8>(params, stream);
  }
}

Status init_prefill_fp8() {
  WINNOW_TRY(init<1>());
  WINNOW_TRY(init<2>());
  WINNOW_TRY(init<4>());
  return init<8>();
}

}  // namespace winnow::cuda::indexer
