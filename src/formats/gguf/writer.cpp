// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf/writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "core/checked.hpp"
#include "core/progress.hpp"
#include "formats/gguf/header.hpp"
#include "formats/quoted.hpp"
#include "formats/tensor_layout.hpp"

namespace winnow::gguf {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// The header is built in memory: a vocabulary makes it some megabytes.
class HeaderBytes {
 public:
  template <class T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    out_.append(bytes, sizeof value);
  }
  void put_string(const std::string& text) {
    put<uint64_t>(text.size());
    out_.append(text);
  }

  void put_value(const Value& value) {
    put(static_cast<uint32_t>(value.type));
    if (value.is_array()) return put_array(value);
    if (value.type == ValueType::string) return put_string(std::get<std::string>(value.data));
    if (const auto* u = std::get_if<uint64_t>(&value.data)) return put_number(value.type, *u);
    if (const auto* i = std::get_if<int64_t>(&value.data)) return put_number(value.type, *i);
    if (const auto* d = std::get_if<double>(&value.data)) return put_number(value.type, *d);
    put<uint8_t>(std::get<bool>(value.data) ? 1 : 0);
  }

  [[nodiscard]] const std::string& bytes() const { return out_; }

 private:
  template <class From>
  void put_number(ValueType type, From value) {
    switch (type) {
      case ValueType::u8:
      case ValueType::boolean: return put(static_cast<uint8_t>(value));
      case ValueType::i8: return put(static_cast<int8_t>(value));
      case ValueType::u16: return put(static_cast<uint16_t>(value));
      case ValueType::i16: return put(static_cast<int16_t>(value));
      case ValueType::u32: return put(static_cast<uint32_t>(value));
      case ValueType::i32: return put(static_cast<int32_t>(value));
      case ValueType::f32: return put(static_cast<float>(value));
      case ValueType::u64: return put(static_cast<uint64_t>(value));
      case ValueType::i64: return put(static_cast<int64_t>(value));
      case ValueType::f64: return put(static_cast<double>(value));
      default: WINNOW_CHECK(false, "no number type");
    }
  }

  void put_array(const Value& value) {
    put(static_cast<uint32_t>(value.element_type));
    if (value.element_type == ValueType::string) {
      put<uint64_t>(value.strings.size());
      for (const std::string& text : value.strings) put_string(text);
    } else if (value.element_type == ValueType::array) {
      const auto& inner = std::get<std::vector<Value>>(value.data);
      put<uint64_t>(inner.size());
      for (const Value& v : inner) put_array(v);
    } else {
      put<uint64_t>(value.numbers.size());
      for (double number : value.numbers) put_number(value.element_type, number);
    }
  }

  std::string out_;
};

Status io_failed(const std::string& path, const char* what) {
  return error(StatusCode::io_error, path, ": ", what, ": ", std::strerror(errno));
}

}  // namespace

Writer::Writer(std::string path, int64_t alignment)
    : path_(std::move(path)), partial_(path_ + ".partial"), alignment_(alignment) {
  WINNOW_CHECK(alignment >= 8 && std::has_single_bit(static_cast<uint64_t>(alignment)), alignment);
}

Writer::~Writer() {
  file_.reset();
  if (created_) ::unlink(partial_.c_str());
}

void Writer::set(std::string key, Value value) {
  for (auto& [existing, old] : metadata_) {
    if (existing == key) {
      old = std::move(value);
      return;
    }
  }
  metadata_.emplace_back(std::move(key), std::move(value));
}

void Writer::add_tensor(std::string name, StorageType type, std::vector<int64_t> dims) {
  tensors_.push_back({std::move(name), type, std::move(dims), 0, 0});
}

Status Writer::place_tensors() {
  std::set<std::string> names;
  int64_t offset = 0;
  for (Tensor& tensor : tensors_) {
    WINNOW_TRY(check_name(tensor.name));
    if (!names.insert(tensor.name).second) {
      return error(StatusCode::invalid_argument, "tensor ", tensor.name, " is added twice");
    }
    if (tensor.dims.empty() || tensor.dims.size() > 4) {
      return error(StatusCode::invalid_argument, "tensor ", tensor.name, " has rank ", tensor.dims.size(),
                   ", wants 1 to 4");
    }
    if (static_cast<uint32_t>(tensor.type) >= kFirstOwnType || traits_of(tensor.type) == nullptr) {
      return error(StatusCode::invalid_argument, "tensor ", tensor.name, " has type ", name_of(tensor.type),
                   ", which GGUF does not have");
    }
    std::array<int64_t, 4> dims{1, 1, 1, 1};
    std::copy(tensor.dims.begin(), tensor.dims.end(), dims.begin());
    Result<int64_t> bytes = tensor_bytes(tensor.type, dims);
    if (!bytes.ok()) return std::move(bytes).status().in(concat("tensor ", tensor.name));
    const auto end = checked_add(offset, *bytes);
    if (!end || *end > INT64_MAX - alignment_) return error(StatusCode::invalid_argument, "the file exceeds 64 bits");
    tensor.bytes = *bytes;
    tensor.offset = offset;
    data_bytes_ += *bytes;
    offset = round_up(*end, alignment_);
  }
  return {};
}

Status Writer::begin() {
  WINNOW_CHECK(!created_, "begin() twice");
  if (alignment_ != kDefaultAlignment) set("general.alignment", Value::of_u32(static_cast<uint32_t>(alignment_)));
  if (Status s = place_tensors(); !s.ok()) return std::move(s).in(path_);
  HeaderBytes header;
  header.put(uint32_t{0x46554747});  // "GGUF"
  header.put(kVersion);
  header.put(static_cast<uint64_t>(tensors_.size()));
  header.put(static_cast<uint64_t>(metadata_.size()));
  for (const auto& [key, value] : metadata_) {
    header.put_string(key);
    header.put_value(value);
  }
  for (const Tensor& tensor : tensors_) {
    header.put_string(tensor.name);
    header.put(static_cast<uint32_t>(tensor.dims.size()));
    for (int64_t dim : tensor.dims) header.put(static_cast<uint64_t>(dim));
    header.put(static_cast<uint32_t>(tensor.type));
    header.put(static_cast<uint64_t>(tensor.offset));
  }
  file_.reset(std::fopen(partial_.c_str(), "wb"));
  if (file_ == nullptr) return io_failed(partial_, "cannot create");
  created_ = true;
  std::setvbuf(file_.get(), nullptr, _IOFBF, kBufferBytes);
  WINNOW_TRY(put(header.bytes().data(), header.bytes().size()));
  return pad();
}

Status Writer::put(const void* bytes, std::size_t count) {
  if (std::fwrite(bytes, 1, count, file_.get()) != count) return io_failed(partial_, "cannot write");
  written_ += static_cast<int64_t>(count);
  return {};
}

Status Writer::pad() {
  static constexpr char kZeros[4096] = {};
  int64_t missing = round_up(written_, alignment_) - written_;
  while (missing > 0) {
    const auto piece = static_cast<std::size_t>(std::min<int64_t>(missing, sizeof kZeros));
    WINNOW_TRY(put(kZeros, piece));
    missing -= static_cast<int64_t>(piece);
  }
  return {};
}

Status Writer::append(std::span<const std::byte> bytes) {
  WINNOW_CHECK(file_ != nullptr, "append() before begin()");
  while (!bytes.empty()) {
    if (current_ == tensors_.size()) {
      return error(StatusCode::invalid_argument, path_, ": ", bytes.size(), " bytes more than the tensors have");
    }
    const int64_t wanted = tensors_[current_].bytes - filled_;
    const auto piece = std::min(bytes.size(), static_cast<std::size_t>(wanted));
    WINNOW_TRY(put(bytes.data(), piece));
    bytes = bytes.subspan(piece);
    filled_ += static_cast<int64_t>(piece);
    data_done_ += static_cast<int64_t>(piece);
    if (filled_ == tensors_[current_].bytes) {
      WINNOW_TRY(pad());
      ++current_;
      filled_ = 0;
    }
  }
  report_progress(what_, data_done_, data_bytes_, "byte");
  return {};
}

Status Writer::finish() {
  WINNOW_CHECK(file_ != nullptr, "finish() before begin()");
  if (current_ != tensors_.size()) {
    return error(StatusCode::invalid_argument, path_, ": tensor ", tensors_[current_].name, " got ", filled_, " of ",
                 tensors_[current_].bytes, " bytes");
  }
  if (std::fflush(file_.get()) != 0) return io_failed(partial_, "cannot write");
  if (::fsync(::fileno(file_.get())) != 0) return io_failed(partial_, "cannot flush to the disk");
  if (std::fclose(file_.release()) != 0) return io_failed(partial_, "cannot close");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) return io_failed(path_, "cannot rename the finished file");
  created_ = false;
  return {};
}

}  // namespace winnow::gguf
