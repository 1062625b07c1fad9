// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf/writer.hpp"

#include <functional>

#include "formats/checkpoint.hpp"
#include "formats/test_files.hpp"

namespace winnow::gguf {
namespace {

std::string partial_of(const std::string& path) { return path + ".partial"; }

TEST(GgufWriter, RoundTripsMetadataAndTensors) {
  const TempFolder folder;
  const std::string path = folder.path("m.gguf");
  Writer writer(path);
  writer.set("general.architecture", Value::of_string("glm-dsa"));
  writer.set("a.u32", Value::of_u32(7));
  writer.set("a.u32", Value::of_u32(4000000000u));
  writer.set("a.f32", Value::of_f32(2.5f));
  writer.set("a.bool", Value::of_bool(true));
  writer.set("a.strings", Value::of_strings({"", "Ġthe", "x"}));
  writer.set("a.types", Value::of_numbers(ValueType::boolean, {1, 0, 1}));
  writer.set("a.i32", Value::of_numbers(ValueType::i32, {-1, 5}));
  writer.add_tensor("odd", StorageType::F32, {3});
  writer.add_tensor("q", StorageType::Q8_0, {32, 2});
  ASSERT_TRUE(writer.begin().ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing under the final name before finish()";
  const std::string odd(12, 'o'), q(68, 'q'), all = odd + q;
  for (std::size_t i = 0; i < all.size(); i += 7) {  // pieces that straddle tensors
    ASSERT_TRUE(writer.append(as_bytes(all).subspan(i, std::min<std::size_t>(7, all.size() - i))).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_FALSE(std::filesystem::exists(partial_of(path)));

  const auto read = open_checkpoint(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->require_data().ok());
  EXPECT_EQ(read->metadata.values().size(), 7u);
  EXPECT_EQ(read->metadata.integer("a.u32").value(), 4000000000);
  EXPECT_EQ(read->metadata.number("a.f32").value(), 2.5);
  EXPECT_TRUE(read->metadata.boolean("a.bool").value());
  EXPECT_EQ(*read->metadata.strings("a.strings"), (std::vector<std::string>{"", "Ġthe", "x"}));
  EXPECT_EQ(read->metadata.integers("a.types").value(), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(read->metadata.integers("a.i32").value(), (std::vector<int64_t>{-1, 5}));
  const TensorInfo* tensor = read->find("q");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->file_offset % 32, 0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->data), 68), q);
}

TEST(GgufWriter, NothingAndOtherAlignments) {
  const TempFolder folder;
  Writer nothing(folder.path("nothing.gguf"));
  ASSERT_TRUE(nothing.begin().ok());
  ASSERT_TRUE(nothing.finish().ok());
  EXPECT_TRUE(open_checkpoint(folder.path("nothing.gguf")).ok());

  Writer aligned(folder.path("aligned.gguf"), 4096);
  aligned.add_tensor("a", StorageType::F32, {1});
  aligned.add_tensor("b", StorageType::F32, {1});
  ASSERT_TRUE(aligned.begin().ok());
  ASSERT_TRUE(aligned.append(as_bytes("12345678")).ok());
  ASSERT_TRUE(aligned.finish().ok());
  const auto read = open_checkpoint(folder.path("aligned.gguf"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->find("b")->file_offset % 4096, 0);
}

TEST(GgufWriter, UnfinishedLeavesNothing) {
  const TempFolder folder;
  const std::string path = folder.write("m.gguf", "the old file");
  {
    Writer writer(path);
    writer.add_tensor("a", StorageType::F32, {4});
    ASSERT_TRUE(writer.begin().ok());
    ASSERT_TRUE(writer.append(as_bytes("1234")).ok());
    EXPECT_FAILS(writer.finish(), "tensor a", "4 of 16 bytes");
  }
  EXPECT_FALSE(std::filesystem::exists(partial_of(path)));
  EXPECT_EQ(std::filesystem::file_size(path), 12u) << "an older file of that name is untouched";
}

TEST(GgufWriter, RefusesWhatItCannotWrite) {
  const TempFolder folder;
  const auto begin = [&](const std::function<void(Writer&)>& fill) {
    Writer writer(folder.path("m.gguf"));
    fill(writer);
    return writer.begin();
  };
  EXPECT_FAILS(begin([](Writer& w) { w.add_tensor("", StorageType::F32, {1}); }), "empty name");
  EXPECT_FAILS(begin([](Writer& w) { w.add_tensor("a", StorageType::F32, {}); }), "tensor a", "rank 0");
  EXPECT_FAILS(begin([](Writer& w) { w.add_tensor("a", StorageType::Q8_0, {31}); }), "tensor a", "multiple of 32");
  EXPECT_FAILS(begin([](Writer& w) { w.add_tensor("a", StorageType::E4M3_B128, {1}); }), "GGUF does not have");
  EXPECT_FAILS(begin([](Writer& w) {
                 w.add_tensor("a", StorageType::F32, {1});
                 w.add_tensor("a", StorageType::F32, {1});
               }),
               "added twice");
  Writer nowhere(folder.path("no/such/folder/m.gguf"));
  EXPECT_FAILS(nowhere.begin(), "cannot create", "No such file");
  Writer over(folder.path("over.gguf"));
  over.add_tensor("a", StorageType::F32, {1});
  ASSERT_TRUE(over.begin().ok());
  EXPECT_FAILS(over.append(as_bytes("12345")), "1 bytes more");
}

TEST(GgufWriter, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path("m.gguf.partial"));
  Writer writer(folder.path("m.gguf"));
  writer.add_tensor("a", StorageType::F32, {1 << 20});
  Status status = writer.begin();
  if (status.ok()) status = writer.append(as_bytes(std::string(4 << 20, 'x')));
  if (status.ok()) status = writer.finish();
  EXPECT_FAILS(status, "cannot", "No space left");
  EXPECT_FALSE(std::filesystem::exists(folder.path("m.gguf")));
}

}  // namespace
}  // namespace winnow::gguf
