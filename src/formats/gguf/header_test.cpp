// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf/header.hpp"

#include <rapidcheck.h>

#include <chrono>
#include <limits>

#include "formats/test_files.hpp"

namespace winnow::gguf {
namespace {

// Two tensors, [4] F32 and [32, 2] Q8_0, with their 16 + 68 bytes of data.
RawGguf two_tensors() {
  RawGguf file;
  file.keys = {raw_key_string("general.architecture", "glm-dsa"), raw_key_u32("glm-dsa.block_count", 3)};
  file.tensors = {{"a.weight", {4}, 0, 0}, {"b.weight", {32, 2}, 8, 32}};
  file.data = std::string(32 + 68, 'x');
  return file;
}

Status status_of(const std::string& bytes) { return parse_header(as_bytes(bytes)).status(); }
Status status_of(const RawGguf& file) { return status_of(file.bytes()); }

TEST(GgufHeader, EmptyInputIsNamed) { EXPECT_FAILS(status_of(""), "empty file", "byte 0"); }

TEST(GgufHeader, NoTensorsAndNoKeysIsAFile) {
  const auto header = parse_header(as_bytes(RawGguf{}.header()));
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors.size(), 0u);
  EXPECT_EQ(header->header_bytes, 24);
  EXPECT_EQ(header->wanted_bytes, 24) << "a shard of metadata alone may end where its header ends";
}

TEST(GgufHeader, PlacesTensors) {
  const RawGguf file = two_tensors();
  const std::string bytes = file.bytes();
  const auto header = parse_header(as_bytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->data_offset % 32, 0);
  EXPECT_EQ(header->wanted_bytes, static_cast<int64_t>(bytes.size()));
  const TensorInfo& b = header->tensors[1];
  EXPECT_EQ(b.name, "b.weight");
  EXPECT_EQ(b.type, StorageType::Q8_0);
  EXPECT_EQ(b.rank, 2);
  EXPECT_EQ(b.dims, (std::array<int64_t, 4>{32, 2, 1, 1}));
  EXPECT_EQ(b.bytes, 68);
  EXPECT_EQ(b.file_offset, header->data_offset + 32);
  EXPECT_EQ(header->metadata.integer("glm-dsa.block_count").value(), 3);
}

TEST(GgufHeader, EveryPrefixOfTheHeaderIsAnErrorThatSaysWhere) {
  const std::string header = two_tensors().header();
  for (std::size_t n = 0; n < header.size(); ++n) {
    const Status status = status_of(header.substr(0, n));
    ASSERT_FALSE(status.ok()) << n;
    ASSERT_NE(status.message().find("byte"), std::string::npos) << n << ": " << status.message();
  }
  EXPECT_TRUE(status_of(header).ok()) << "the header alone is enough";
}

TEST(GgufHeader, TruncatedInsideATensorInfoNamesTheTensor) {
  const std::string header = two_tensors().header();
  EXPECT_FAILS(status_of(header.substr(0, header.size() - 4)), "tensor b.weight", "download");
}

TEST(GgufHeader, ForeignFiles) {
  EXPECT_FAILS(status_of("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), "git-lfs");
  EXPECT_FAILS(status_of("<!DOCTYPE html><html><body>Sign in</body></html>"), "HTML page");
  EXPECT_FAILS(status_of("\n  <HTML>"), "web page");
  EXPECT_FAILS(status_of("{\"error\":\"Entry not found\"}"), "JSON");
  EXPECT_FAILS(status_of(std::string("PK\x03\x04", 4) + std::string(30, 'x')), "zip archive");
  EXPECT_FAILS(status_of(std::string(5000, '\0')), "all zeros");
  EXPECT_FAILS(status_of("tjgg1234567890"), "before GGUF");
  EXPECT_FAILS(status_of("\x01\x02\x03\x04zz"), "01 02 03 04");
  EXPECT_FAILS(status_of(safetensors::raw_file("{}        ")), "safetensors");
}

TEST(GgufHeader, WrongVersions) {
  RawGguf file = two_tensors();
  file.version = 0x03000000;
  EXPECT_FAILS(status_of(file), "big-endian");
  file.version = 1;
  EXPECT_FAILS(status_of(file), "version 1", "convert");
  file.version = 4;
  EXPECT_FAILS(status_of(file), "version 4", "wants 3");
}

TEST(GgufHeader, AbsurdCountsCostNothing) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t count : {int64_t{1000}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    RawGguf file = two_tensors();
    file.tensor_count = count;
    EXPECT_FAILS(status_of(file), "tensor count", "byte 8");
    file = two_tensors();
    file.key_count = count;
    EXPECT_FAILS(status_of(file), "key count", "byte 16");
    file = two_tensors();
    file.keys.push_back(raw_string("k") + raw<uint32_t>(9) + raw<uint32_t>(4) + raw(count));
    EXPECT_FAILS(status_of(file), "\"k\"", "array length");
    file = two_tensors();
    file.keys.push_back(raw(count) + "key");
    EXPECT_FAILS(status_of(file), "byte");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(GgufHeader, StringLongerThanTheFile) {
  RawGguf file = two_tensors();
  file.keys.push_back(raw_string("k") + raw<uint32_t>(8) + raw<uint64_t>(1000000) + "short");
  EXPECT_FAILS(status_of(file), "\"k\"", "1000000", "download");
  file.keys.back() = raw_string("k") + raw<uint32_t>(8) + raw<uint64_t>(uint64_t{1} << 63) + "short";
  EXPECT_FAILS(status_of(file), "\"k\"", "wants at most");
}

TEST(GgufHeader, WrongValues) {
  RawGguf file;
  file.keys = {raw_string("k") + raw<uint32_t>(13) + raw<uint32_t>(0) + raw<uint32_t>(0)};
  EXPECT_FAILS(status_of(file), "value type", "13");
  file.keys = {raw_string("k") + raw<uint32_t>(7) + "\x02" + std::string(8, '\0')};
  EXPECT_FAILS(status_of(file), "bool", "is 2");
  file.keys = {raw_key_u32("twice", 1), raw_key_u32("twice", 2)};
  EXPECT_FAILS(status_of(file), "twice", "second time");
  file.keys = {raw_key_u32("", 1)};
  EXPECT_FAILS(status_of(file), "metadata key 0");
  file.keys = {raw_key_u32("a\x1b[2J", 1)};
  EXPECT_FAILS(status_of(file), "\\x1b[2J");
}

TEST(GgufHeader, NestedArraysAreReadAndBounded) {
  const auto nested = [](int depth) {
    std::string value = raw_string("k") + raw<uint32_t>(9);
    for (int i = 1; i < depth; ++i) value += raw<uint32_t>(9) + raw<uint64_t>(1);
    return value + raw<uint32_t>(0) + raw<uint64_t>(2) + "\x05\x06";
  };
  RawGguf file;
  file.keys = {nested(2)};
  const std::string bytes = file.bytes();
  const auto header = parse_header(as_bytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  const auto& inner = std::get<std::vector<Value>>(header->metadata.find("k")->data);
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_EQ(inner[0].numbers, (std::vector<double>{5, 6}));
  file.keys = {nested(1000)};
  EXPECT_FAILS(status_of(file), "nested deeper");
}

TEST(GgufHeader, EveryScalarTypeIsRead) {
  RawGguf file;
  const auto key = [](const char* name, uint32_t type, const std::string& value) {
    return raw_string(name) + raw(type) + value;
  };
  file.keys = {key("u8", 0, raw<uint8_t>(200)),
               key("i8", 1, raw<int8_t>(-100)),
               key("u16", 2, raw<uint16_t>(60000)),
               key("i16", 3, raw<int16_t>(-30000)),
               key("u32", 4, raw<uint32_t>(4000000000u)),
               key("i32", 5, raw<int32_t>(-7)),
               key("f32", 6, raw(1.5f)),
               key("bool", 7, raw<uint8_t>(1)),
               key("u64", 10, raw<uint64_t>(1ull << 60)),
               key("i64", 11, raw<int64_t>(-1ll << 60)),
               key("f64", 12, raw(0.1))};
  const std::string bytes = file.bytes();
  const auto header = parse_header(as_bytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  const Metadata& m = header->metadata;
  EXPECT_EQ(m.integer("u8").value(), 200);
  EXPECT_EQ(m.integer("i8").value(), -100);
  EXPECT_EQ(m.integer("u16").value(), 60000);
  EXPECT_EQ(m.integer("i16").value(), -30000);
  EXPECT_EQ(m.integer("u32").value(), 4000000000);
  EXPECT_EQ(m.integer("i32").value(), -7);
  EXPECT_EQ(m.number("f32").value(), 1.5);
  EXPECT_TRUE(m.boolean("bool").value());
  EXPECT_EQ(m.integer("u64").value(), int64_t{1} << 60);
  EXPECT_EQ(m.integer("i64").value(), -(int64_t{1} << 60));
  EXPECT_EQ(m.number("f64").value(), 0.1);
}

TEST(GgufHeader, WrongTensors) {
  const auto with = [](const RawTensor& tensor) {
    RawGguf file;
    file.tensors = {tensor};
    file.data = std::string(64, 'x');
    return status_of(file);
  };
  EXPECT_FAILS(with({"", {4}, 0, 0}), "empty name");
  EXPECT_FAILS(with({std::string(300, 'n'), {4}, 0, 0}), "tensor 0", "length of 300");
  EXPECT_FAILS(with({"a\nb", {4}, 0, 0}), "control");
  EXPECT_FAILS(with({"w", {}, 0, 0}), "w", "rank", "is 0");
  EXPECT_FAILS(with({"w", {1, 1, 1, 1, 1}, 0, 0}), "tensor w", "rank", "is 5");
  EXPECT_FAILS(with({"w", {0}, 0, 0}), "tensor w", "dimension 0", "is 0");
  EXPECT_FAILS(with({"w", {4, static_cast<uint64_t>(-3)}, 0, 0}), "tensor w", "dimension 1", "is -3");
  EXPECT_FAILS(with({"w", {31}, 8, 0}), "tensor w", "31 elements", "multiple of 32");
  EXPECT_FAILS(with({"w", {1ull << 40, 1ull << 40}, 0, 0}), "tensor w", "overflow");
  EXPECT_FAILS(with({"w", {1ull << 62}, 0, 0}), "tensor w", "overflow");
  EXPECT_FAILS(with({"w", {4}, 0, 33}), "tensor w", "offset", "33", "multiple of 32");
  EXPECT_FAILS(with({"w", {4}, 0, ~0ull - 31}), "tensor w", "offset");
  EXPECT_FAILS(with({"w", {4}, 0, (1ull << 63) - 32}), "tensor w", "64-bit");
}

TEST(GgufHeader, UnknownTypesAreExplained) {
  const auto with = [](uint32_t type) {
    RawGguf file;
    file.tensors = {{"blk.0.ffn_down.weight", {256}, type, 0}};
    return status_of(file);
  };
  EXPECT_FAILS(with(137), "blk.0.ffn_down.weight", "type 137", "ik_llama.cpp", "IQ2_K");
  EXPECT_FAILS(with(36), "ik_llama.cpp");
  EXPECT_FAILS(with(155), "ik_llama.cpp");
  EXPECT_FAILS(with(4), "removed");
  EXPECT_FAILS(with(77), "unknown");
  EXPECT_FAILS(with(1000), "unknown");  // our own ids never come from a file
  EXPECT_EQ(with(77).code(), StatusCode::unsupported);
}

TEST(GgufHeader, DuplicateAndOverlappingTensors) {
  RawGguf file = two_tensors();
  file.tensors[1].name = "a.weight";
  EXPECT_FAILS(status_of(file), "a.weight", "second time");
  file = two_tensors();
  file.tensors[0].dims = {12};  // 48 bytes, the next begins at 32
  EXPECT_FAILS(status_of(file), "b.weight", "inside tensor a.weight", "byte");
  file = two_tensors();
  file.tensors[1].offset = 0;
  EXPECT_FAILS(status_of(file), "inside tensor");
}

TEST(GgufHeader, Alignment) {
  RawGguf file = two_tensors();
  file.keys.push_back(raw_key_u32("general.alignment", 64));
  file.alignment = 64;
  EXPECT_FAILS(status_of(file), "b.weight", "multiple of 64");
  file.tensors[1].offset = 64;
  const std::string bytes = file.bytes();
  const auto header = parse_header(as_bytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->data_offset % 64, 0);
  for (uint32_t wrong : {0u, 1u, 24u, 1u << 30}) {
    file.keys.back() = raw_key_u32("general.alignment", wrong);
    EXPECT_FAILS(status_of(file), "general.alignment", "power of two");
  }
}

// No damaged header may crash, hang or eat memory; whether it is refused depends on the byte.
TEST(GgufHeader, DamagedBytesNeverCrash) {
  const std::string good = two_tensors().bytes();
  EXPECT_TRUE(rc::check("flipped bytes", [&] {
    std::string bytes = good;
    const auto edits = *rc::gen::container<std::vector<std::pair<uint16_t, uint8_t>>>(
        rc::gen::pair(rc::gen::arbitrary<uint16_t>(), rc::gen::arbitrary<uint8_t>()));
    for (const auto& [at, value] : edits) bytes[at % bytes.size()] = static_cast<char>(value);
    const auto header = parse_header(as_bytes(bytes));
    if (!header.ok()) RC_ASSERT(!header.status().message().empty());
  }));
}

}  // namespace
}  // namespace winnow::gguf
