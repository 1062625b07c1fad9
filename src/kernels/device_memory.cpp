// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_memory.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace winnow::kernels {
namespace {

constexpr uint8_t kGuardByte = 0xA5;
constexpr uint8_t kPoisonByte = 0xFF;

bool& poison() {
  static bool on = true;
  return on;
}

Status check_guard(const std::byte* zone, const std::string& name, const char* side) {
  std::array<uint8_t, kGuardBytes> bytes{};
  WINNOW_CUDA_TRY(cudaMemcpy(bytes.data(), zone, kGuardBytes, cudaMemcpyDeviceToHost));
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](uint8_t b) { return b != kGuardByte; });
  if (bad == bytes.end()) return {};
  return error(StatusCode::corrupt_data, "guard zone ", side, " buffer '", name, "' was written at byte ",
               bad - bytes.begin(), " of ", kGuardBytes);
}

// Memsets and copies from pageable memory may still run when their call returns, and our streams do not wait for the
// default stream.
Status settle() { return cuda_status(cudaStreamSynchronize(nullptr), "default stream"); }

}  // namespace

void set_poison(bool on) { poison() = on; }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(name_, other.name_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (base_ != nullptr) cudaFree(base_);
}

Result<DeviceBuffer> DeviceBuffer::allocate(std::string name, int64_t bytes) {
  DeviceBuffer buffer;
  buffer.name_ = std::move(name);
  buffer.bytes_ = bytes;
  void* base = nullptr;
  WINNOW_TRY(cuda_status(cudaMalloc(&base, bytes + 2 * kGuardBytes),
                         concat("device memory for ", buffer.name_, ", ", bytes, " bytes")));
  buffer.base_ = static_cast<std::byte*>(base);
  WINNOW_CUDA_TRY(cudaMemset(buffer.base_, kGuardByte, kGuardBytes));
  WINNOW_CUDA_TRY(cudaMemset(buffer.base_ + kGuardBytes + bytes, kGuardByte, kGuardBytes));
  if (poison()) WINNOW_TRY(buffer.fill(kPoisonByte));
  return buffer;
}

Result<DeviceBuffer> DeviceBuffer::upload(std::string name, const void* host, int64_t bytes) {
  WINNOW_TRY_ASSIGN(DeviceBuffer buffer, allocate(std::move(name), bytes));
  WINNOW_TRY(buffer.write(host, bytes));
  return buffer;
}

Status DeviceBuffer::fill(uint8_t byte) {
  if (bytes_ == 0) return {};
  WINNOW_TRY(cuda_status(cudaMemset(data(), byte, bytes_), name_));
  return settle();
}

Status DeviceBuffer::write(const void* host, int64_t bytes) {
  if (bytes > bytes_) return error(StatusCode::internal, name_, " holds ", bytes_, " bytes, ", bytes, " were written");
  if (bytes == 0) return {};
  WINNOW_TRY(cuda_status(cudaMemcpy(data(), host, bytes, cudaMemcpyHostToDevice), name_));
  return settle();
}

Status DeviceBuffer::read(void* host, int64_t bytes) const {
  if (bytes > bytes_) return error(StatusCode::internal, name_, " holds ", bytes_, " bytes, ", bytes, " were read");
  if (bytes == 0) return {};
  return cuda_status(cudaMemcpy(host, data(), bytes, cudaMemcpyDeviceToHost), name_);
}

Status DeviceBuffer::guards_intact() const {
  if (base_ == nullptr) return {};
  WINNOW_TRY(check_guard(base_, name_, "before"));
  return check_guard(base_ + kGuardBytes + bytes_, name_, "behind");
}

Result<Stream> Stream::create() {
  Stream stream;
  WINNOW_CUDA_TRY(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking));
  return stream;
}

}  // namespace winnow::kernels
