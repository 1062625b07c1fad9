// SPDX-License-Identifier: Apache-2.0
// Facts of a CUDA device from the driver, as the predicates want them.
#pragma once

#include "contract/device_info.hpp"
#include "core/status.hpp"

namespace winnow::kernels {

// KB of shared memory per block (and one more per SM) that the kernels shall take for the device's: a card then runs
// the tiles of a smaller one, 99 those of SM86, SM89 and SM120, 163 those of SM80.
inline constexpr const char* kSharedLimitVariable = "WINNOW_SHARED_KB";

// bandwidth comes from the memory clock and bus width; matrix_flops from the tensor rate of the compute capability,
// the SM count and the boost clock: a data-sheet figure, to be set beside a measured one (ceilings.hpp).
// invalid_argument: WINNOW_SHARED_KB is no whole number from 48 to what the device has.
[[nodiscard]] Result<DeviceInfo> device_facts(int device);

}  // namespace winnow::kernels
