// SPDX-License-Identifier: Apache-2.0
// Speed from bytes and operations: a ceiling at the device's rates, with the bound that gives it.
//
//   time of a step = max(bytes / bandwidth, operations / matrix rate)
// Layers that are split over devices run one after another, so one step has the rates of one device whatever their
// number. Experts are taken to be chosen independently and evenly: n tokens touch a share 1 - (1 - used / all)^n.
//
// Decode, one token for each of n sequences, L positions visible, r = min(topk, L) rows read (L without an indexer):
//   bytes       dense weights + head + share(n) * expert weights
//               + n * (r * latent bytes of all layers + L * key bytes of full layers, when L > topk)
//   operations  n * (2 * active elements + layers * 2 * heads * r * (d_qk + d_v)
//               + full layers * 2 * index_heads * index_dim * L, when L > topk)
// Prefill, a prompt of P in steps of n:
//   bytes       steps * (dense + share(n) * experts) + head + sum over steps of every cached row and key once
//               (rows that several tokens of a step read come from memory once and from caches after that)
//   operations  as in decode with L = 1 .. P, the head once
#pragma once

#include <cstdint>

#include "plan/budget.hpp"
#include "plan/plan.hpp"

namespace winnow {

struct TrafficInputs {
  const ModelConfig* config = nullptr;
  WeightTotals weights;
  int64_t latent_bytes_per_token = 0, key_bytes_per_token = 0;
  bool dense = false;  // the indexer is ignored
};

[[nodiscard]] Speed decode_speed(const TrafficInputs& in, const DeviceInfo& device, int64_t sequences, int64_t visible);
[[nodiscard]] Speed prefill_speed(const TrafficInputs& in, const DeviceInfo& device, int64_t prompt,
                                  int64_t step_tokens);

// Weights that one token reads: everything but the embedding, and of experts the share in use.
[[nodiscard]] int64_t active_weight_bytes(const TrafficInputs& in);

}  // namespace winnow
