// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of this folder: a folder that goes away, and files made byte by byte, wrong ones included.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace winnow {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "winnow-formats-XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    EXPECT_NE(made, nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

namespace gguf {

inline std::string raw_string(const std::string& text) { return raw<uint64_t>(text.size()) + text; }

inline std::string raw_key_u32(const std::string& key, uint32_t value) {
  return raw_string(key) + raw<uint32_t>(4) + raw(value);
}
inline std::string raw_key_string(const std::string& key, const std::string& value) {
  return raw_string(key) + raw<uint32_t>(8) + raw_string(value);
}

struct RawTensor {
  std::string name;
  std::vector<uint64_t> dims;
  uint32_t type = 0;  // F32
  uint64_t offset = 0;
};

// A GGUF file from parts, none of which is checked.
struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> keys;  // raw_key_*()
  std::vector<RawTensor> tensors;
  int64_t tensor_count = -1;  // -1: as many as there are
  int64_t key_count = -1;
  uint64_t alignment = 32;
  std::string data;

  [[nodiscard]] std::string header() const {
    std::string out = magic + raw(version);
    out += raw<uint64_t>(tensor_count < 0 ? tensors.size() : static_cast<uint64_t>(tensor_count));
    out += raw<uint64_t>(key_count < 0 ? keys.size() : static_cast<uint64_t>(key_count));
    for (const std::string& key : keys) out += key;
    for (const RawTensor& t : tensors) {
      out += raw_string(t.name) + raw<uint32_t>(static_cast<uint32_t>(t.dims.size()));
      for (uint64_t dim : t.dims) out += raw(dim);
      out += raw(t.type) + raw(t.offset);
    }
    return out;
  }
  [[nodiscard]] std::string bytes() const {
    std::string out = header();
    while (out.size() % alignment != 0) out += '\0';
    return out + data;
  }
};

}  // namespace gguf

namespace safetensors {

// length | json, padded to a multiple of 8 as writers do | data
inline std::string raw_file(std::string json, const std::string& data = "") {
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return raw<uint64_t>(json.size()) + json + data;
}

}  // namespace safetensors
}  // namespace winnow

// The status is a failure whose message contains each of the given texts.
#define EXPECT_FAILS(status, ...)                                                                              \
  [](const ::winnow::Status& failed, std::initializer_list<std::string> wanted) {                              \
    EXPECT_FALSE(failed.ok()) << "wanted a failure";                                                           \
    for (const std::string& text : wanted) {                                                                   \
      EXPECT_NE(failed.message().find(text), std::string::npos) << text << " is not in: " << failed.message(); \
    }                                                                                                          \
  }((status), {__VA_ARGS__})
