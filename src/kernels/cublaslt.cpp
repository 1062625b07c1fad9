// SPDX-License-Identifier: Apache-2.0
// The matrix-product ceiling through cuBLASLt, opened at run time: the program must start where only a driver is.
// Layouts and calls: cuBLAS 13 documentation, cublasLtMatmul.
#include <dlfcn.h>

#include <cstdlib>

#include "core/cuda_status.hpp"
#include "kernels/ceilings.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/fill.hpp"
#include "kernels/timing.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace winnow::kernels {
namespace {

struct Library {
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

template <class Function>
bool load(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

Result<Library> open_library() {
  Library l;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (l.handle == nullptr) l.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (l.handle == nullptr) return error(StatusCode::not_found, "libcublasLt.so could not be opened");
  const bool whole =
      load(l.handle, "cublasLtCreate", l.create) && load(l.handle, "cublasLtDestroy", l.destroy) &&
      load(l.handle, "cublasLtGetVersion", l.version) && load(l.handle, "cublasLtMatmulDescCreate", l.desc_create) &&
      load(l.handle, "cublasLtMatmulDescSetAttribute", l.desc_set) &&
      load(l.handle, "cublasLtMatmulDescDestroy", l.desc_destroy) &&
      load(l.handle, "cublasLtMatrixLayoutCreate", l.layout_create) &&
      load(l.handle, "cublasLtMatrixLayoutDestroy", l.layout_destroy) &&
      load(l.handle, "cublasLtMatmulPreferenceCreate", l.preference_create) &&
      load(l.handle, "cublasLtMatmulPreferenceSetAttribute", l.preference_set) &&
      load(l.handle, "cublasLtMatmulPreferenceDestroy", l.preference_destroy) &&
      load(l.handle, "cublasLtMatmulAlgoGetHeuristic", l.heuristic) && load(l.handle, "cublasLtMatmul", l.matmul);
  if (!whole) return error(StatusCode::not_found, "libcublasLt.so lacks a function of version 12 or 13");
  return l;
}

Status ok(cublasStatus_t code, const char* what) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return error(StatusCode::device_error, what, " returned cuBLAS status ", static_cast<int>(code));
}

constexpr int64_t kSize = 8192;
constexpr std::size_t kWorkspace = std::size_t{64} << 20;

// The handles of one product D = A^T B, all kSize x kSize bf16; destroyed together. The library stays loaded.
struct Product {
  const Library& l;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t best{};

  explicit Product(const Library& library) : l(library) {}
  ~Product() {
    if (preference != nullptr) l.preference_destroy(preference);
    if (layout != nullptr) l.layout_destroy(layout);
    if (desc != nullptr) l.desc_destroy(desc);
    if (handle != nullptr) l.destroy(handle);
  }
  Status prepare() {
    WINNOW_TRY(ok(l.create(&handle), "cublasLtCreate"));
    WINNOW_TRY(ok(l.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
    const cublasOperation_t transpose = CUBLAS_OP_T;
    WINNOW_TRY(ok(l.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose), "set transa"));
    WINNOW_TRY(ok(l.layout_create(&layout, CUDA_R_16BF, kSize, kSize, kSize), "cublasLtMatrixLayoutCreate"));
    WINNOW_TRY(ok(l.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
    WINNOW_TRY(
        ok(l.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace),
           "set workspace"));
    int found = 0;
    WINNOW_TRY(
        ok(l.heuristic(handle, desc, layout, layout, layout, layout, preference, 1, &best, &found), "heuristic"));
    if (found == 0) return error(StatusCode::unsupported, "cuBLASLt knows no bf16 product for this device");
    return {};
  }
};

}  // namespace

Result<double> measure_cublaslt(cudaStream_t stream, std::string& source) {
  WINNOW_TRY_ASSIGN(const Library library, open_library());
  Product product(library);
  WINNOW_TRY(product.prepare());
  source = concat("cuBLASLt ", library.version());
  constexpr int64_t kElements = kSize * kSize;
  WINNOW_TRY_ASSIGN(const DeviceBuffer a, DeviceBuffer::allocate("matmul a", kElements * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer b, DeviceBuffer::allocate("matmul b", kElements * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer d, DeviceBuffer::allocate("matmul d", kElements * 2));
  WINNOW_TRY_ASSIGN(const DeviceBuffer workspace, DeviceBuffer::allocate("matmul workspace", kWorkspace));
  WINNOW_TRY(fill_normal_bf16(a.data(), kElements, 1.0f, 2, stream));
  WINNOW_TRY(fill_normal_bf16(b.data(), kElements, 1.0f, 3, stream));
  const float one = 1, zero = 0;
  const TimingPlan plan{.launches = 5, .repeats = 15};
  WINNOW_TRY_ASSIGN(const Timing timing, time_graph(stream, plan, [&](cudaStream_t s, int) {
                      return ok(library.matmul(product.handle, product.desc, &one, a.data(), product.layout, b.data(),
                                               product.layout, &zero, d.data(), product.layout, d.data(),
                                               product.layout, &product.best.algo, workspace.data(), kWorkspace, s),
                                "cublasLtMatmul");
                    }));
  return 2.0 * kSize * kSize * kSize / (timing.median_us * 1e-6);
}

}  // namespace winnow::kernels

#else

namespace winnow::kernels {
Result<double> measure_cublaslt(cudaStream_t, std::string&) {
  return error(StatusCode::unsupported, "cublasLt.h was not there when this program was built");
}
}  // namespace winnow::kernels

#endif
