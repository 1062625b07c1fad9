// SPDX-License-Identifier: Apache-2.0
#include "formats/text_file.hpp"

#include "formats/mapped_file.hpp"

namespace winnow {

Result<std::string> read_text_file(const std::string& path, int64_t max_bytes) {
  WINNOW_TRY_ASSIGN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (static_cast<int64_t>(bytes.size()) > max_bytes) {
    return error(StatusCode::unsupported, path, ": has ", bytes.size(), " bytes, wants at most ", max_bytes,
                 "; is it the right file?");
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<std::string> read_text_file_if_present(const std::string& path, int64_t max_bytes) {
  Result<std::string> text = read_text_file(path, max_bytes);
  if (!text.ok() && text.status().code() == StatusCode::not_found) return std::string();
  return text;
}

}  // namespace winnow
