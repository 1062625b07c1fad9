// SPDX-License-Identifier: Apache-2.0
#include "core/status.hpp"

#include <cstdlib>

#include "core/log.hpp"

namespace winnow {

const char* name_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid argument";
    case StatusCode::not_found: return "not found";
    case StatusCode::corrupt_data: return "corrupt data";
    case StatusCode::unsupported: return "unsupported";
    case StatusCode::out_of_memory: return "out of memory";
    case StatusCode::io_error: return "input/output error";
    case StatusCode::device_error: return "device error";
    case StatusCode::cancelled: return "cancelled";
    case StatusCode::internal: return "internal error";
  }
  return "unknown status";
}

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  log(LogLevel::error, concat(file, ":", line, ": check failed: ", condition, values.empty() ? "" : ": ", values));
  std::abort();
}

}  // namespace winnow
