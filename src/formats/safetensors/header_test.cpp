// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors/header.hpp"

#include <rapidcheck.h>

#include "formats/test_files.hpp"

namespace winnow::safetensors {
namespace {

const char* const kTwo = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                         R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}      )";

Status status_of(const std::string& bytes) { return parse_header(as_bytes(bytes)).status(); }
// One tensor "w" whose entry is the given JSON.
Status status_of_entry(const std::string& entry) {
  return status_of(raw_file("{\"w\":" + entry + "}", std::string(64, 'x')));
}

TEST(SafetensorsHeader, EmptyAndTiny) {
  EXPECT_FAILS(status_of(""), "empty file");
  EXPECT_FAILS(status_of("1234"), "has 4 bytes");
  const auto none = parse_header(as_bytes(raw_file("{}")));
  EXPECT_TRUE(none.ok()) << none.status().message();
}

TEST(SafetensorsHeader, ReadsShapesInnermostFirst) {
  const std::string bytes = raw_file(kTwo, std::string(16, 'x'));
  const auto header = parse_header(as_bytes(bytes));
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "s") << "in the order of the file";
  EXPECT_EQ(header->tensors[0].rank, 0);
  EXPECT_EQ(header->tensors[0].elements(), 1);
  const TensorInfo& w = header->tensors[1];
  EXPECT_EQ(w.dims, (std::array<int64_t, 4>{3, 2, 1, 1}));
  EXPECT_EQ(w.type, StorageType::BF16);
  EXPECT_EQ(w.bytes, 12);
  EXPECT_EQ(w.file_offset, static_cast<int64_t>(bytes.size()) - 12);
  EXPECT_EQ(header->wanted_bytes, static_cast<int64_t>(bytes.size()));
}

TEST(SafetensorsHeader, EveryPrefixOfTheHeaderIsAnError) {
  const std::string bytes = raw_file(kTwo);
  for (std::size_t n = 0; n < bytes.size(); ++n) ASSERT_FALSE(status_of(bytes.substr(0, n)).ok()) << n;
  EXPECT_TRUE(status_of(bytes).ok());
  EXPECT_FAILS(status_of(bytes.substr(0, 40)), "ends at byte 40", "download");
}

TEST(SafetensorsHeader, ForeignFiles) {
  EXPECT_FAILS(status_of("version https://git-lfs.github.com/spec/v1\n"), "git-lfs");
  EXPECT_FAILS(status_of("<!DOCTYPE html><html>"), "HTML");
  EXPECT_FAILS(status_of(gguf::RawGguf{}.bytes()), "GGUF");
  EXPECT_FAILS(status_of(raw<uint64_t>(200'000'000) + "{"), "100000000");
  EXPECT_FAILS(status_of(raw<uint64_t>(~0ull) + "{}"), "header length");
}

TEST(SafetensorsHeader, BrokenJson) {
  EXPECT_FAILS(status_of(raw_file("{\"w\":")), "not valid JSON", "byte");
  EXPECT_FAILS(status_of(raw_file("{\"\xff\":1}")), "not valid JSON");
  EXPECT_FAILS(status_of(raw_file("{\"w\":" + std::string(100000, '['))), "nested deeper");
  EXPECT_FAILS(status_of(raw_file(R"({"w":1,"w":2})")), "\"w\"", "twice");
  EXPECT_FAILS(status_of(raw_file(R"({"w":{"dtype":"F32","dtype":"F16"}})")), "\"dtype\"", "twice");
  EXPECT_FAILS(status_of(raw_file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":3})")), "tensor b",
               "no object");
}

TEST(SafetensorsHeader, WrongEntries) {
  EXPECT_FAILS(status_of_entry("{}"), "tensor w", "dtype");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), "tensor w", "\"U8\"", "packed");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F33","shape":[4],"data_offsets":[0,4]})"), "\"F33\"");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","data_offsets":[0,4]})"), "shape");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]})"), "rank is 5");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})"), "dimension 0 is 0");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "dimension 0 is -1");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})"), "dimension 0");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1e300],"data_offsets":[0,4]})"), "dimension 0");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]})"),
               "dimension 0");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]})"), "overflow");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1]})"), "data_offsets");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "data_offsets");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"), "span 8 bytes", "want 4");
  EXPECT_FAILS(
      status_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807]})"),
      "64-bit");
  EXPECT_FAILS(status_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[1,5]})"), "multiple of 4");
}

TEST(SafetensorsHeader, Overlaps) {
  EXPECT_FAILS(status_of(raw_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}  )")),
               "tensor b", "inside tensor a");
}

TEST(SafetensorsHeader, DamagedBytesNeverCrash) {
  const std::string good = raw_file(kTwo, std::string(16, 'x'));
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
}  // namespace winnow::safetensors
