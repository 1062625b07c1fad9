// SPDX-License-Identifier: Apache-2.0
// Copies of a GGUF file with one thing wrong, by patching bytes of its header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace winnow::test {

// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

// The bytes of a GGUF file, with handles on its tensor infos.
class GgufBytes {
 public:
  explicit GgufBytes(const std::string& path);
  std::string bytes;

  void set_u32(std::size_t at, uint32_t value);
  void set_u64(std::size_t at, uint64_t value);
  [[nodiscard]] uint64_t u64(std::size_t at) const;
  // Same length, so that nothing moves. The first occurrence.
  void replace(const std::string& from, const std::string& to);

  struct Tensor {
    std::size_t name, dims, type, offset;  // places in bytes
    uint32_t rank;
  };
  [[nodiscard]] Tensor tensor(const std::string& name) const;
  // Place of the tensor's first data byte.
  [[nodiscard]] std::size_t data(const std::string& name) const;

 private:
  std::size_t data_begin_ = 0;
};

}  // namespace winnow::test
