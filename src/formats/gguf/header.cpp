// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf/header.hpp"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "core/checked.hpp"
#include "formats/byte_reader.hpp"
#include "formats/foreign.hpp"
#include "formats/quoted.hpp"
#include "formats/tensor_layout.hpp"

namespace winnow::gguf {
namespace {

constexpr int64_t kMaxKeyBytes = 65535;                // the format's own limit
constexpr int64_t kMaxStringBytes = int64_t{1} << 24;  // a chat template is some 10 KB
constexpr int64_t kMaxArrayElements = int64_t{1} << 26;
constexpr int kMaxArrayDepth = 4;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;
constexpr int64_t kSmallestKey = 8 + 1 + 4 + 1;             // length, one letter, type, a bool
constexpr int64_t kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;  // length, one letter, rank, one dim, type, offset

// Bytes of one scalar; 0 for string and array.
int64_t bytes_of(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64: return 8;
    case ValueType::string:
    case ValueType::array: return 0;
  }
  return 0;
}

class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : bytes_(bytes), in_(bytes) {}

  Result<Header> parse() {
    WINNOW_TRY(preamble());
    WINNOW_TRY(keys());
    WINNOW_TRY(alignment());
    WINNOW_TRY(tensors());
    WINNOW_TRY(place());
    return std::move(header_);
  }

 private:
  Status preamble() {
    if (!looks_like_gguf(bytes_)) {
      return error(StatusCode::corrupt_data, "no GGUF file: wants \"GGUF\" at byte 0; this is ", likely_kind(bytes_));
    }
    uint32_t magic = 0, version = 0;
    WINNOW_TRY(in_.read(magic, "the magic"));
    WINNOW_TRY(in_.read(version, "the version"));
    if (version == __builtin_bswap32(kVersion)) {
      return error(StatusCode::unsupported,
                   "big-endian GGUF (version bytes at byte 4 are swapped); wants a little-endian file");
    }
    if (version != kVersion) {
      return error(StatusCode::unsupported, "GGUF version ", version, " at byte 4, wants ", kVersion,
                   version < kVersion ? "; convert the model again with a current converter" : "");
    }
    WINNOW_TRY(count(tensor_count_, "tensor count", kSmallestTensor));
    return count(key_count_, "metadata key count", kSmallestKey);
  }

  // A count whose items could not fit the rest of the file is an error before anything is reserved.
  Status count(int64_t& out, const char* what, int64_t smallest) {
    uint64_t value = 0;
    const int64_t at = in_.offset();
    WINNOW_TRY(in_.read(value, what));
    if (value > static_cast<uint64_t>(in_.remaining() / smallest)) {
      return error(StatusCode::corrupt_data, what, " at byte ", at, " is ", value, ", but the ", in_.remaining(),
                   " bytes that follow hold at most ", in_.remaining() / smallest,
                   "; the file is truncated inside its header, or damaged");
    }
    out = static_cast<int64_t>(value);
    return {};
  }

  Status keys() {
    for (int64_t i = 0; i < key_count_; ++i) {
      std::string key;
      const int64_t at = in_.offset();
      WINNOW_TRY(in_.read_string(key, kMaxKeyBytes, "a metadata key"));
      if (key.empty() || has_control_bytes(key)) {
        return error(StatusCode::corrupt_data, "metadata key ", i, " at byte ", at, " is ", quoted(key),
                     "; wants printable text");
      }
      if (header_.metadata.find(key) != nullptr) {
        return error(StatusCode::corrupt_data, "metadata key ", key, " appears a second time at byte ", at);
      }
      Value value;
      if (Status s = value_of_key(value); !s.ok()) return std::move(s).in(concat("metadata key ", quoted(key)));
      header_.metadata.set(std::move(key), std::move(value));
    }
    return {};
  }

  Status type(ValueType& out) {
    uint32_t id = 0;
    const int64_t at = in_.offset();
    WINNOW_TRY(in_.read(id, "a value type"));
    if (id > static_cast<uint32_t>(ValueType::f64)) {
      return error(StatusCode::corrupt_data, "value type at byte ", at, " is ", id, ", wants 0 to 12");
    }
    out = static_cast<ValueType>(id);
    return {};
  }

  Status value_of_key(Value& out) {
    WINNOW_TRY(type(out.type));
    if (out.type == ValueType::array) return array(out, 1);
    if (out.type == ValueType::string) {
      std::string text;
      WINNOW_TRY(in_.read_string(text, kMaxStringBytes, "a string value"));
      out.data = std::move(text);
      return {};
    }
    return scalar(out);
  }

  template <class T, class Stored>
  Status scalar_as(Value& out) {
    T value{};
    WINNOW_TRY(in_.read(value, "a value"));
    out.data = static_cast<Stored>(value);
    return {};
  }

  Status scalar(Value& out) {
    switch (out.type) {
      case ValueType::u8: return scalar_as<uint8_t, uint64_t>(out);
      case ValueType::u16: return scalar_as<uint16_t, uint64_t>(out);
      case ValueType::u32: return scalar_as<uint32_t, uint64_t>(out);
      case ValueType::u64: return scalar_as<uint64_t, uint64_t>(out);
      case ValueType::i8: return scalar_as<int8_t, int64_t>(out);
      case ValueType::i16: return scalar_as<int16_t, int64_t>(out);
      case ValueType::i32: return scalar_as<int32_t, int64_t>(out);
      case ValueType::i64: return scalar_as<int64_t, int64_t>(out);
      case ValueType::f32: return scalar_as<float, double>(out);
      case ValueType::f64: return scalar_as<double, double>(out);
      case ValueType::boolean: {
        uint8_t value = 0;
        const int64_t at = in_.offset();
        WINNOW_TRY(in_.read(value, "a bool"));
        if (value > 1)
          return error(StatusCode::corrupt_data, "bool at byte ", at, " is ", int{value}, ", wants 0 or 1");
        out.data = value == 1;
        return {};
      }
      default: break;
    }
    return error(StatusCode::internal, "no scalar");
  }

  Status array(Value& out, int depth) {
    if (depth > kMaxArrayDepth) {
      return error(StatusCode::corrupt_data, "arrays are nested deeper than ", kMaxArrayDepth, " at byte ",
                   in_.offset());
    }
    WINNOW_TRY(type(out.element_type));
    const int64_t scalar_bytes = bytes_of(out.element_type);
    const int64_t smallest = out.element_type == ValueType::array ? 12 : scalar_bytes == 0 ? 8 : scalar_bytes;
    int64_t elements = 0;
    WINNOW_TRY(count(elements, "array length", smallest));
    if (elements > kMaxArrayElements) {
      return error(StatusCode::corrupt_data, "array of ", elements, " elements, wants at most ", kMaxArrayElements);
    }
    if (out.element_type == ValueType::array) return nested(out, elements, depth);
    if (out.element_type == ValueType::string) return strings(out.strings, elements);
    return numbers(out, elements);
  }

  Status nested(Value& out, int64_t elements, int depth) {
    std::vector<Value> values;
    for (int64_t i = 0; i < elements; ++i) {
      Value& element = values.emplace_back();
      element.type = ValueType::array;
      WINNOW_TRY(array(element, depth + 1));
    }
    out.data = std::move(values);
    return {};
  }

  Status strings(std::vector<std::string>& out, int64_t elements) {
    out.resize(static_cast<std::size_t>(elements));
    for (std::string& text : out) WINNOW_TRY(in_.read_string(text, kMaxStringBytes, "a string of an array"));
    return {};
  }

  template <class T>
  Status numbers_as(std::vector<double>& out, int64_t elements) {
    out.resize(static_cast<std::size_t>(elements));
    for (double& number : out) {
      T value{};
      WINNOW_TRY(in_.read(value, "an array"));
      number = static_cast<double>(value);
    }
    return {};
  }

  Status numbers(Value& out, int64_t elements) {
    switch (out.element_type) {
      case ValueType::u8:
      case ValueType::boolean: return numbers_as<uint8_t>(out.numbers, elements);
      case ValueType::u16: return numbers_as<uint16_t>(out.numbers, elements);
      case ValueType::u32: return numbers_as<uint32_t>(out.numbers, elements);
      case ValueType::u64: return numbers_as<uint64_t>(out.numbers, elements);
      case ValueType::i8: return numbers_as<int8_t>(out.numbers, elements);
      case ValueType::i16: return numbers_as<int16_t>(out.numbers, elements);
      case ValueType::i32: return numbers_as<int32_t>(out.numbers, elements);
      case ValueType::i64: return numbers_as<int64_t>(out.numbers, elements);
      case ValueType::f32: return numbers_as<float>(out.numbers, elements);
      case ValueType::f64: return numbers_as<double>(out.numbers, elements);
      default: break;
    }
    return error(StatusCode::internal, "no number");
  }

  Status alignment() {
    if (header_.metadata.find("general.alignment") == nullptr) return {};
    WINNOW_TRY_ASSIGN(header_.alignment, header_.metadata.integer("general.alignment"));
    const int64_t a = header_.alignment;
    if (a < 8 || a > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(a))) {
      return error(StatusCode::corrupt_data, "general.alignment is ", a, ", wants a power of two from 8 to ",
                   kMaxAlignment);
    }
    return {};
  }

  Status tensors() {
    header_.tensors.reserve(static_cast<std::size_t>(tensor_count_));
    std::unordered_set<std::string> names;
    for (int64_t i = 0; i < tensor_count_; ++i) {
      const int64_t at = in_.offset();
      TensorInfo tensor;
      Status s = in_.read_string(tensor.name, kMaxTensorNameBytes, "a tensor name");
      if (!s.ok()) return std::move(s).in(concat("info of tensor ", i, " of ", tensor_count_));
      WINNOW_TRY(check_name(tensor.name));
      if (!names.insert(tensor.name).second) {
        return error(StatusCode::corrupt_data, "tensor ", tensor.name, " appears a second time at byte ", at);
      }
      if (s = tensor_info(tensor); !s.ok()) return std::move(s).in(concat("tensor ", tensor.name));
      header_.tensors.push_back(std::move(tensor));
    }
    header_.header_bytes = in_.offset();
    return {};
  }

  Status tensor_info(TensorInfo& tensor) {
    uint32_t rank = 0, id = 0;
    uint64_t offset = 0;
    const int64_t rank_at = in_.offset();
    WINNOW_TRY(in_.read(rank, "the rank"));
    if (rank < 1 || rank > 4) {
      return error(StatusCode::corrupt_data, "rank at byte ", rank_at, " is ", rank, ", wants 1 to 4");
    }
    tensor.rank = static_cast<int32_t>(rank);
    for (uint32_t d = 0; d < rank; ++d) {
      const int64_t at = in_.offset();
      WINNOW_TRY(in_.read(tensor.dims[d], "a dimension"));
      if (tensor.dims[d] < 1) {
        return error(StatusCode::corrupt_data, "dimension ", d, " at byte ", at, " is ", tensor.dims[d],
                     ", wants 1 or more");
      }
    }
    const int64_t type_at = in_.offset();
    WINNOW_TRY(in_.read(id, "the tensor type"));
    tensor.type = static_cast<StorageType>(id);
    if (id >= kFirstOwnType || traits_of(tensor.type) == nullptr) {
      return error(StatusCode::unsupported, "type ", id, " at byte ", type_at, " is ", why_unknown(id));
    }
    const int64_t offset_at = in_.offset();
    WINNOW_TRY(in_.read(offset, "the offset"));
    if (offset > static_cast<uint64_t>(INT64_MAX) || static_cast<int64_t>(offset) % header_.alignment != 0) {
      return error(StatusCode::corrupt_data, "offset at byte ", offset_at, " is ", offset, ", wants a multiple of ",
                   header_.alignment);
    }
    tensor.file_offset = static_cast<int64_t>(offset);  // place() adds the start of the data
    WINNOW_TRY_ASSIGN(tensor.bytes, tensor_bytes(tensor.type, tensor.dims));
    return {};
  }

  // Turns offsets into the data section into offsets into the file.
  Status place() {
    header_.data_offset = round_up(header_.header_bytes, header_.alignment);
    header_.wanted_bytes = header_.header_bytes;
    for (TensorInfo& tensor : header_.tensors) {
      const auto begin = checked_add(header_.data_offset, tensor.file_offset);
      const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
      if (!end) {
        return error(StatusCode::corrupt_data, "tensor ", tensor.name, " at offset ", tensor.file_offset, " with ",
                     tensor.bytes, " bytes ends beyond a 64-bit size");
      }
      tensor.file_offset = *begin;
      header_.wanted_bytes = std::max(header_.wanted_bytes, *end);
    }
    return check_overlaps(header_.tensors);
  }

  std::span<const std::byte> bytes_;
  ByteReader in_;
  Header header_;
  int64_t tensor_count_ = 0;
  int64_t key_count_ = 0;
};

}  // namespace

Result<Header> parse_header(std::span<const std::byte> bytes) { return Parser(bytes).parse(); }

}  // namespace winnow::gguf
