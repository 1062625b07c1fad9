// SPDX-License-Identifier: Apache-2.0
#include "damaged_model.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "formats/checkpoint.hpp"

namespace winnow::test {
namespace {

std::string with_length(const std::string& name) {
  const uint64_t length = name.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + name;
}

}  // namespace

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "winnow_cli_XXXXXX").string();
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream out(path_ / name, std::ios::binary);
  out << content;
  EXPECT_TRUE(out.good()) << name;
  return file(name);
}

GgufBytes::GgufBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  bytes = std::move(text).str();
  const auto checkpoint = open_checkpoint(path);
  EXPECT_TRUE(checkpoint.ok()) << path;
  const TensorInfo& first = checkpoint->tensors.front();
  data_begin_ = static_cast<std::size_t>(first.file_offset) - u64(tensor(first.name).offset);
}

void GgufBytes::set_u32(std::size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); }
void GgufBytes::set_u64(std::size_t at, uint64_t value) { std::memcpy(bytes.data() + at, &value, 8); }

uint64_t GgufBytes::u64(std::size_t at) const {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, 8);
  return value;
}

void GgufBytes::replace(const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  const std::size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
}

GgufBytes::Tensor GgufBytes::tensor(const std::string& name) const {
  const std::size_t at = bytes.find(with_length(name));
  EXPECT_NE(at, std::string::npos) << name;
  Tensor tensor{};
  tensor.name = at + 8;
  uint32_t rank = 0;
  std::memcpy(&rank, bytes.data() + tensor.name + name.size(), 4);
  tensor.rank = rank;
  tensor.dims = tensor.name + name.size() + 4;
  tensor.type = tensor.dims + 8 * std::size_t{rank};
  tensor.offset = tensor.type + 4;
  return tensor;
}

std::size_t GgufBytes::data(const std::string& name) const {
  return data_begin_ + static_cast<std::size_t>(u64(tensor(name).offset));
}

}  // namespace winnow::test
