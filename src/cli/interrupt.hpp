// SPDX-License-Identifier: Apache-2.0
// SIGINT as a question: the first one asks to stop between two steps, the second one ends the process.
#pragma once

namespace winnow::cli {

void catch_interrupts();
[[nodiscard]] bool interrupted();

}  // namespace winnow::cli
