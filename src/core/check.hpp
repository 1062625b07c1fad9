// SPDX-License-Identifier: Apache-2.0
// WINNOW_CHECK(condition, values...): for mistakes of this code alone. Logs the values and aborts. Bad arguments, files
// and devices are not such mistakes: they get a Status.
#pragma once

#include <string>

#include "core/concat.hpp"

namespace winnow {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

}  // namespace winnow

#define WINNOW_CHECK(condition, ...)                                                         \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::winnow::check_failed(__FILE__, __LINE__, #condition, ::winnow::concat(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define WINNOW_DCHECK(condition, ...) \
  do {                                \
  } while (false)
#else
#define WINNOW_DCHECK(condition, ...) WINNOW_CHECK(condition, __VA_ARGS__)
#endif
