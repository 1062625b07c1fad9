// SPDX-License-Identifier: Apache-2.0
// One compiled kernel behind a plain function: mla_launch.cpp needs no device code.
#pragma once

#include "backends/cuda/mla_kernel.cuh"
#include "backends/cuda/mla_launch.hpp"

#define WINNOW_MLA_INSTANCE(name, Row, warps, overlapped)                                               \
  namespace winnow::cuda {                                                                              \
  __global__ void __launch_bounds__(warps == 8 ? 256 : 128) name(const __grid_constant__ MlaParams p) { \
    sparse_mla<Shape<Row, warps, overlapped>>(p);                                                       \
  }                                                                                                     \
  const void* name##_function() { return reinterpret_cast<const void*>(name); }                         \
  }
