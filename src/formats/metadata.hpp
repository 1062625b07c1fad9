// SPDX-License-Identifier: Apache-2.0
// GGUF metadata: key -> value. Integer getters accept any integer width, as writers disagree about it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.hpp"

namespace winnow::gguf {

enum class ValueType : uint32_t { u8 = 0, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
[[nodiscard]] const char* name_of(ValueType type);

struct Value {
  ValueType type = ValueType::u8;
  // u*: uint64_t; i*: int64_t; f32, f64: double; boolean: bool.
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<Value>> data;
  // Homogeneous big arrays stay packed: a token list of 154,880 strings must not become Values.
  ValueType element_type = ValueType::u8;
  std::vector<std::string> strings;  // array of string
  std::vector<double> numbers;       // array of any number or bool (exact below 2^53)
  // An array of arrays: data holds a vector<Value>, each of type array.
  [[nodiscard]] bool is_array() const { return type == ValueType::array; }

  [[nodiscard]] bool operator==(const Value& other) const;

  // For writers.
  [[nodiscard]] static Value of_u32(uint32_t v);
  [[nodiscard]] static Value of_f32(float v);
  [[nodiscard]] static Value of_bool(bool v);
  [[nodiscard]] static Value of_string(std::string v);
  [[nodiscard]] static Value of_strings(std::vector<std::string> v);
  [[nodiscard]] static Value of_numbers(ValueType element_type, std::vector<double> v);
};

class Metadata {
 public:
  [[nodiscard]] const Value* find(std::string_view key) const;
  // not_found when absent, corrupt_data when the type does not fit: both name the key.
  [[nodiscard]] Result<int64_t> integer(std::string_view key) const;
  [[nodiscard]] Result<double> number(std::string_view key) const;
  [[nodiscard]] Result<bool> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::string> string(std::string_view key) const;
  [[nodiscard]] Result<std::vector<int64_t>> integers(std::string_view key) const;    // array of ints or bools
  [[nodiscard]] const std::vector<std::string>* strings(std::string_view key) const;  // null when absent or not strings
  [[nodiscard]] const std::vector<double>* numbers(std::string_view key) const;

  void set(std::string key, Value value) { values_.insert_or_assign(std::move(key), std::move(value)); }
  [[nodiscard]] const std::map<std::string, Value, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace winnow::gguf
