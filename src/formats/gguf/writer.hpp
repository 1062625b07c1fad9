// SPDX-License-Identifier: Apache-2.0
// Writer of GGUF v3 files, streamed: announce metadata and tensors, then hand over the tensors' bytes in that order.
//
// The file appears under its name whole or not at all: bytes go to "<path>.partial", which finish() renames and which
// the destructor removes when finish() was not reached. Memory: one write buffer; tensors are never held.
//
//   Writer writer("out.gguf");
//   writer.set("general.architecture", Value::of_string("glm-dsa"));
//   writer.add_tensor("output_norm.weight", StorageType::F32, {256});
//   WINNOW_TRY(writer.begin());
//   WINNOW_TRY(writer.append(bytes));   // any number of pieces; a tensor ends where its size says
//   WINNOW_TRY(writer.finish());
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status.hpp"
#include "formats/metadata.hpp"
#include "formats/storage.hpp"

namespace winnow::gguf {

class Writer {
 public:
  explicit Writer(std::string path, int64_t alignment = 32);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Before begin(). Keys are written in the order of their first set().
  void set(std::string key, Value value);
  // dims: contiguous first, 1 to 4 of them.
  void add_tensor(std::string name, StorageType type, std::vector<int64_t> dims);

  // Checks names and shapes, opens the file, writes the header.
  [[nodiscard]] Status begin();
  // The next bytes of the tensor data, in the order of add_tensor(), padding excluded. Reports progress as `what`.
  [[nodiscard]] Status append(std::span<const std::byte> bytes);
  // All tensors must be complete. Flushes to the disk and renames.
  [[nodiscard]] Status finish();

  void set_progress_name(std::string what) { what_ = std::move(what); }
  [[nodiscard]] int64_t data_bytes() const { return data_bytes_; }  // of all tensors, without padding

 private:
  struct Tensor {
    std::string name;
    StorageType type;
    std::vector<int64_t> dims;
    int64_t bytes;
    int64_t offset;  // in the data section
  };

  [[nodiscard]] Status place_tensors();
  [[nodiscard]] Status put(const void* bytes, std::size_t count);
  [[nodiscard]] Status pad();

  std::string path_, partial_;
  std::string what_ = "write";
  int64_t alignment_;
  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<Tensor> tensors_;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  bool created_ = false;
  std::size_t current_ = 0;  // tensor being filled
  int64_t filled_ = 0;       // its bytes so far
  int64_t written_ = 0;      // bytes in the file
  int64_t data_bytes_ = 0, data_done_ = 0;
};

}  // namespace winnow::gguf
