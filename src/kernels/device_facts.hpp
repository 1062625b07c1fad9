// SPDX-License-Identifier: Apache-2.0
// Facts of a CUDA device from the driver, as the predicates want them.
#pragma once

#include "contract/device_info.hpp"
#include "core/status.hpp"

namespace winnow::kernels {

// bandwidth comes from the memory clock and bus width; matrix_flops from the tensor rate of the compute capability,
// the SM count and the boost clock: a data-sheet figure, to be set beside a measured one (ceilings.hpp).
[[nodiscard]] Result<DeviceInfo> device_facts(int device);

}  // namespace winnow::kernels
