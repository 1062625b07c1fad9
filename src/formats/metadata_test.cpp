// SPDX-License-Identifier: Apache-2.0
#include "formats/metadata.hpp"

#include "formats/test_files.hpp"

namespace winnow::gguf {
namespace {

Metadata sample() {
  Metadata m;
  m.set("u32", Value::of_u32(5));
  m.set("text", Value::of_string("x"));
  m.set("flag", Value::of_bool(true));
  m.set("strings", Value::of_strings({"a"}));
  m.set("floats", Value::of_numbers(ValueType::f32, {0.5}));
  m.set("big", Value::of_numbers(ValueType::u64, {1e18}));
  Value huge;
  huge.type = ValueType::u64;
  huge.data = ~uint64_t{0};
  m.set("huge", huge);
  return m;
}

TEST(Metadata, AbsentKeysAreNamed) {
  const Metadata m;
  EXPECT_EQ(m.integer("k").status().code(), StatusCode::not_found);
  EXPECT_FAILS(m.string("some.key").status(), "some.key");
  EXPECT_EQ(m.find("k"), nullptr);
  EXPECT_EQ(m.strings("k"), nullptr);
  EXPECT_EQ(m.numbers("k"), nullptr);
}

TEST(Metadata, WrongTypesAreNamed) {
  const Metadata m = sample();
  EXPECT_FAILS(m.integer("text").status(), "text", "an integer", "string");
  EXPECT_FAILS(m.integer("flag").status(), "flag", "bool");
  EXPECT_FAILS(m.string("u32").status(), "u32", "a string");
  EXPECT_FAILS(m.boolean("u32").status(), "a bool");
  EXPECT_FAILS(m.number("strings").status(), "array of string");
  EXPECT_FAILS(m.integers("strings").status(), "array of integers");
  EXPECT_FAILS(m.integers("floats").status(), "array of f32");
  EXPECT_FAILS(m.integers("u32").status(), "u32");
  EXPECT_FAILS(m.integers("big").status(), "2^53");
  EXPECT_FAILS(m.integer("huge").status(), "beyond");
  EXPECT_EQ(m.strings("floats"), nullptr);
  EXPECT_EQ(m.numbers("strings"), nullptr);
}

TEST(Metadata, NumbersAcceptIntegers) { EXPECT_EQ(sample().number("u32").value(), 5.0); }

}  // namespace
}  // namespace winnow::gguf
