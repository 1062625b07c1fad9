// SPDX-License-Identifier: Apache-2.0
// Status and Result: how a function says that what a caller, a file or a device caused cannot be done.
//
// A message says what, wanted, found, where and the next step:
//   cache: sequence 3 wants 12 more pages, 5 of 64 are free; close a sequence or ask for a larger cache
//
// Nothing of ours throws. Exceptions of the standard library stop at the C ABI, at main and at one server request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/check.hpp"
#include "core/concat.hpp"

namespace winnow {

// Values are part of the C ABI (winnow_status in include/winnow/winnow.h): never renumber.
enum class StatusCode : int32_t {
  ok = 0,
  invalid_argument = 1,  // the caller asked for something that has no meaning
  not_found = 2,         // a file, tensor, key or name that does not exist
  corrupt_data = 3,      // a file that breaks its own format
  unsupported = 4,       // well-formed, but nothing here can do it
  out_of_memory = 5,     // planned or actual memory does not fit
  io_error = 6,          // the operating system refused
  device_error = 7,      // a CUDA call or launch failed
  cancelled = 8,         // the caller changed its mind
  internal = 9,          // an exception crossed a border; our fault
};
[[nodiscard]] const char* name_of(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::ok; }
  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  // The same failure with the place in front: "model.gguf: tensor ...". No effect on ok.
  [[nodiscard]] Status in(std::string_view place) && {
    if (!ok()) message_ = concat(place, ": ", message_);
    return std::move(*this);
  }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

// error(StatusCode::corrupt_data, "tensor ", name, " has ", dims, " dimensions, wants 1 to 4")
template <class... Args>
[[nodiscard]] Status error(StatusCode code, const Args&... args) {
  return Status(code, concat(args...));
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status failure) : state_(std::in_place_index<1>, std::move(failure)) {  // NOLINT(google-explicit-constructor)
    WINNOW_CHECK(!std::get<1>(state_).ok(), "a Result cannot be made from an ok Status");
  }

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  [[nodiscard]] Status status() && { return ok() ? Status() : std::move(std::get<1>(state_)); }

  // The value; aborts when there is none, so ask ok() first.
  [[nodiscard]] T& value() & {
    WINNOW_CHECK(ok(), std::get<1>(state_).message());
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    WINNOW_CHECK(ok(), std::get<1>(state_).message());
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    WINNOW_CHECK(ok(), std::get<1>(state_).message());
    return std::move(std::get<0>(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace winnow

#define WINNOW_CONCAT_INNER(a, b) a##b
#define WINNOW_CONCAT(a, b) WINNOW_CONCAT_INNER(a, b)

// WINNOW_TRY(check(problem));                 returns the Status when it is not ok
#define WINNOW_TRY(expression)                                                                       \
  do {                                                                                               \
    if (::winnow::Status winnow_status_ = (expression); !winnow_status_.ok()) return winnow_status_; \
  } while (false)

// WINNOW_TRY_ASSIGN(auto file, open(path));   returns the Status, or assigns the value
#define WINNOW_TRY_ASSIGN(target, expression) \
  WINNOW_TRY_ASSIGN_INNER(WINNOW_CONCAT(winnow_result_, __LINE__), target, expression)
#define WINNOW_TRY_ASSIGN_INNER(result, target, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return std::move(result).status();      \
  target = std::move(result).value()
