// SPDX-License-Identifier: Apache-2.0
#include "formats/checkpoint.hpp"

#include "formats/test_files.hpp"

namespace winnow {
namespace {

TEST(Checkpoint, EmptyFolderSaysWhatItWants) {
  const TempFolder folder;
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "model.safetensors", ".gguf");
}

TEST(Checkpoint, FolderOfSeveralGgufsAsksForOne) {
  const TempFolder folder;
  folder.write("a.gguf", gguf::RawGguf{}.bytes());
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
  folder.write("b.gguf", gguf::RawGguf{}.bytes());
  EXPECT_FAILS(open_checkpoint(folder.path()).status(), "several", "a.gguf", "b.gguf");
}

TEST(Checkpoint, ContentDecidesWithoutAnExtension) {
  const TempFolder folder;
  const auto gguf = open_checkpoint(folder.write("blob1", gguf::RawGguf{}.bytes()));
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  EXPECT_EQ(gguf->format, ContainerFormat::gguf);
  const auto tensors = open_checkpoint(folder.write("blob2", safetensors::raw_file("{}")));
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_EQ(tensors->format, ContainerFormat::safetensors);
  EXPECT_FAILS(open_checkpoint(folder.write("blob3", "hello")).status(), "blob3", "unknown format");
  EXPECT_EQ(open_checkpoint("").status().code(), StatusCode::not_found);
}

TEST(Checkpoint, ChatTemplateComesFromMetadata) {
  const TempFolder folder;
  gguf::RawGguf file;
  file.keys = {gguf::raw_key_string("tokenizer.chat_template", "{{ messages }}")};
  const auto checkpoint = open_checkpoint(folder.write("m.gguf", file.bytes()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->chat_template, "{{ messages }}");
}

TEST(Checkpoint, MovingKeepsTensorsReadable) {
  const TempFolder folder;
  gguf::RawGguf file;
  file.tensors = {{"t", {4}, 0, 0}};
  file.data = "0123456789abcdef";
  auto opened = open_checkpoint(folder.write("m.gguf", file.bytes()));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint moved = std::move(opened).value();
  EXPECT_EQ(static_cast<char>(moved.find("t")->data[15]), 'f');
  EXPECT_EQ(moved.find("absent"), nullptr);
}

}  // namespace
}  // namespace winnow
