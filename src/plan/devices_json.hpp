// SPDX-License-Identifier: Apache-2.0
// The text of devices.json, built into the program.
#pragma once

namespace winnow {
extern const char* const kDevicesJson;
}  // namespace winnow
