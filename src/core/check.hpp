// SPDX-License-Identifier: Apache-2.0
// WINNOW_CHECK(condition, values...): our own broken invariant, and only that. Logs the values and aborts.
// What a caller, a file or a device can cause is a Status instead.
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
