// SPDX-License-Identifier: Apache-2.0
#include "formats/metadata.hpp"

#include <limits>

namespace winnow::gguf {
namespace {

constexpr double kExactDouble = 9007199254740992.0;  // 2^53: integers above may not be what the file said

// The scalar of type T in a value; null for arrays, whose `data` is idle.
template <class T>
const T* scalar(const Value& value) {
  return value.is_array() ? nullptr : std::get_if<T>(&value.data);
}

Status absent(std::string_view key) { return error(StatusCode::not_found, "metadata key ", key, " is absent"); }

Status wrong_type(std::string_view key, std::string_view wanted, const Value& found) {
  return error(StatusCode::corrupt_data, "metadata key ", key, " wants ", wanted, ", is ", name_of(found.type),
               found.is_array() ? concat(" of ", name_of(found.element_type)) : "");
}

}  // namespace

const char* name_of(ValueType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<uint32_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

const Value* Metadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<int64_t> Metadata::integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* i = scalar<int64_t>(*value)) return *i;
  if (const auto* u = scalar<uint64_t>(*value)) {
    if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return error(StatusCode::corrupt_data, "metadata key ", key, " is ", *u, ", beyond a signed 64-bit integer");
    }
    return static_cast<int64_t>(*u);
  }
  return wrong_type(key, "an integer", *value);
}

Result<double> Metadata::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* d = scalar<double>(*value)) return *d;
  if (const auto* i = scalar<int64_t>(*value)) return static_cast<double>(*i);
  if (const auto* u = scalar<uint64_t>(*value)) return static_cast<double>(*u);
  return wrong_type(key, "a number", *value);
}

Result<bool> Metadata::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* b = scalar<bool>(*value)) return *b;
  return wrong_type(key, "a bool", *value);
}

Result<std::string> Metadata::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* s = scalar<std::string>(*value); s != nullptr && value->type == ValueType::string) return *s;
  return wrong_type(key, "a string", *value);
}

Result<std::vector<int64_t>> Metadata::integers(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return absent(key);
  const ValueType element = value->element_type;
  if (!value->is_array() || element == ValueType::string || element == ValueType::array || element == ValueType::f32 ||
      element == ValueType::f64) {
    return wrong_type(key, "an array of integers or bools", *value);
  }
  std::vector<int64_t> out;
  out.reserve(value->numbers.size());
  for (double number : value->numbers) {
    if (number > kExactDouble || number < -kExactDouble) {
      return error(StatusCode::corrupt_data, "metadata key ", key, " holds ", number, ", beyond 2^53");
    }
    out.push_back(static_cast<int64_t>(number));
  }
  return out;
}

const std::vector<std::string>* Metadata::strings(std::string_view key) const {
  const Value* value = find(key);
  return value != nullptr && value->is_array() && value->element_type == ValueType::string ? &value->strings : nullptr;
}

const std::vector<double>* Metadata::numbers(std::string_view key) const {
  const Value* value = find(key);
  const bool packed = value != nullptr && value->is_array() && value->element_type != ValueType::string &&
                      value->element_type != ValueType::array;
  return packed ? &value->numbers : nullptr;
}

bool Value::operator==(const Value& other) const {
  return type == other.type && element_type == other.element_type && data == other.data && strings == other.strings &&
         numbers == other.numbers;
}

Value Value::of_u32(uint32_t v) {
  Value value;
  value.type = ValueType::u32;
  value.data = static_cast<uint64_t>(v);
  return value;
}

Value Value::of_f32(float v) {
  Value value;
  value.type = ValueType::f32;
  value.data = static_cast<double>(v);
  return value;
}

Value Value::of_bool(bool v) {
  Value value;
  value.type = ValueType::boolean;
  value.data = v;
  return value;
}

Value Value::of_string(std::string v) {
  Value value;
  value.type = ValueType::string;
  value.data = std::move(v);
  return value;
}

Value Value::of_strings(std::vector<std::string> v) {
  Value value;
  value.type = ValueType::array;
  value.element_type = ValueType::string;
  value.strings = std::move(v);
  return value;
}

Value Value::of_numbers(ValueType element_type, std::vector<double> v) {
  Value value;
  value.type = ValueType::array;
  value.element_type = element_type;
  value.numbers = std::move(v);
  return value;
}

}  // namespace winnow::gguf
