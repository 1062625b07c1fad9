// SPDX-License-Identifier: Apache-2.0
#include "kernels/ceilings.hpp"

#include <algorithm>

#include "core/cuda_status.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/fill.hpp"
#include "kernels/timing.hpp"

namespace winnow::kernels {
namespace {

Result<double> measure_copy(cudaStream_t stream) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  WINNOW_TRY_ASSIGN(const DeviceBuffer from, DeviceBuffer::allocate("copy source", kBytes));
  WINNOW_TRY_ASSIGN(const DeviceBuffer to, DeviceBuffer::allocate("copy target", kBytes));
  WINNOW_TRY(fill_normal_bf16(from.data(), kBytes / 2, 1.0f, 1, stream));
  const TimingPlan plan{.launches = 4, .repeats = 15};
  // The driver's copy inside a graph is not always the fastest one, so a kernel of ours competes.
  WINNOW_TRY_ASSIGN(const Timing driver, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      return cuda_status(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, s),
                                         "copy");
                    }));
  WINNOW_TRY_ASSIGN(const Timing ours, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      return launch_copy(from.data(), to.data(), kBytes, s);
                    }));
  return 2.0 * static_cast<double>(kBytes) / (std::min(driver.median_us, ours.median_us) * 1e-6);
}

}  // namespace

Result<Ceilings> measure_ceilings(cudaStream_t stream) {
  Ceilings ceilings;
  WINNOW_TRY_ASSIGN(ceilings.copy_bytes_per_s, measure_copy(stream));
  WINNOW_TRY_ASSIGN(ceilings.mma_flops, measure_mma_sync(stream));
  Result<double> matmul = measure_cublaslt(stream, ceilings.matmul_source);
  if (matmul.ok()) {
    ceilings.matmul_flops = *matmul;
  } else {
    ceilings.matmul_flops = ceilings.mma_flops;
    ceilings.matmul_source = concat("mma.sync, since ", matmul.status().message());
  }
  return ceilings;
}

}  // namespace winnow::kernels
