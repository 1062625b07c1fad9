// SPDX-License-Identifier: Apache-2.0
// Device memory of the winnow-kernels program. The kernel library itself never allocates.
//
// A DeviceBuffer has a guard zone before and behind its bytes, filled with a pattern: an out-of-bounds write that stays
// inside the process's memory, which no hardware check sees, shows when guards_intact() is asked. The payload begins
// as 0xFF bytes: NaN in f32, bf16 and e4m3, -1 in int32, so that memory nobody wrote cannot pass for a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "core/cuda_status.hpp"
#include "core/status.hpp"

namespace winnow::kernels {

inline constexpr int64_t kGuardBytes = 4096;

// Off: fresh payloads stay unwritten, so that compute-sanitizer's initcheck sees who reads them. On at the start.
void set_poison(bool on);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  // `name` appears in messages about broken guards. bytes may be 0: data() is then still a legal address.
  [[nodiscard]] static Result<DeviceBuffer> allocate(std::string name, int64_t bytes);
  // The same, filled from host memory.
  [[nodiscard]] static Result<DeviceBuffer> upload(std::string name, const void* host, int64_t bytes);

  [[nodiscard]] Status fill(uint8_t byte);  // payload only
  [[nodiscard]] Status write(const void* host, int64_t bytes);
  [[nodiscard]] Status read(void* host, int64_t bytes) const;
  // corrupt_data with the buffer's name, the side and the first broken byte.
  [[nodiscard]] Status guards_intact() const;

  [[nodiscard]] std::byte* data() const { return base_ == nullptr ? nullptr : base_ + kGuardBytes; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data());
  }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  std::string name_;
};

// A stream that is destroyed with its owner.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  [[nodiscard]] static Result<Stream> create();
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace winnow::kernels
