// SPDX-License-Identifier: Apache-2.0
// Draws core/progress on stderr: only on a terminal, and only for work that takes over two seconds or will.
#pragma once

namespace winnow::cli {

// Sets the progress sink. Does nothing when stderr is no terminal.
void install_progress_bar();

// Removes a drawn bar so that other text can be written.
void clear_progress_bar();

}  // namespace winnow::cli
