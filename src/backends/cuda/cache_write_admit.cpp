// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/cache_write_admit.hpp"

namespace winnow::cuda {

Verdict admits_write(const CacheWriteProblem& p, const DeviceInfo& device) {
  Verdict v;
  v.need(device.kind == DeviceKind::cuda, "device", "an NVIDIA GPU", "a CPU");
  v.need(device.sm >= 80, "sm", "80 or later", device.sm);
  v.need(p.rows != RowFormat::f32, "rows", "bf16 or v32_fp8", name_of(p.rows));
  v.need(p.index_dim == 0 || p.keys != KeyFormat::f32, "keys", "bf16 or fp8", name_of(p.keys));
  v.need(p.activations == DType::f32 || p.activations == DType::bf16, "activations", "f32 or bf16",
         name_of(p.activations));
  v.launch.rows_per_tile = 1;
  v.launch.stages = 1;
  v.launch.note = "one CTA per token";
  return v;
}

}  // namespace winnow::cuda
