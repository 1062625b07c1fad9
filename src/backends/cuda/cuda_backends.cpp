// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/cuda_backends.hpp"

#include "backends/cuda/cache_write_admit.hpp"
#include "backends/cuda/mla_admit.hpp"
#include "indexer/cuda/select_admit.hpp"

namespace winnow {
namespace {

Verdict admits_mla(const Backend&, const SparseMlaProblem& problem, const DeviceInfo& device) {
  return cuda::admits_mla(problem, device);
}
Verdict admits_select(const Backend&, const IndexSelectProblem& problem, const DeviceInfo& device) {
  return cuda::admits_select(problem, device);
}
Verdict admits_write(const Backend&, const CacheWriteProblem& problem, const DeviceInfo& device) {
  return cuda::admits_write(problem, device);
}

Backend make_row() {
  Backend row;
  row.name = "cuda.sm80";
  row.kind = DeviceKind::cuda;
  row.built = false;
  row.why_absent = "not built into this program; its kernels are in the library winnow_kernels (make kernels)";
  row.admits_mla = admits_mla;
  row.admits_select = admits_select;
  row.admits_write = admits_write;
  return row;
}

}  // namespace

const Backend& cuda_sm80_backend() {
  static const Backend row = make_row();
  return row;
}

}  // namespace winnow
