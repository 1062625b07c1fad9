// SPDX-License-Identifier: Apache-2.0
// Ops on the host CPU. Device memory is host memory; weights are read where the file is mapped.
#pragma once

#include <memory>

#include "ops/ops.hpp"

namespace winnow {

[[nodiscard]] std::unique_ptr<Ops> make_cpu_ops(DeviceInfo device);

}  // namespace winnow
