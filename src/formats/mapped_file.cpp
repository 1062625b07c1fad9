// SPDX-License-Identifier: Apache-2.0
#include "formats/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace winnow {
namespace {

Status refused(const std::string& path, const char* what) {
  const int reason = errno;
  return error(reason == ENOENT ? StatusCode::not_found : StatusCode::io_error, path, ": ", what, ": ",
               std::strerror(reason));
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer would otherwise wait for ever.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return refused(path, "cannot open");
  struct stat facts {};
  if (::fstat(file, &facts) != 0) {
    Status failure = refused(path, "cannot stat");
    ::close(file);
    return failure;
  }
  if (!S_ISREG(facts.st_mode)) {
    ::close(file);
    return error(StatusCode::io_error, path, ": is ", kind_of(facts.st_mode),
                 ", not a regular file; files are mapped into memory, so copy its content into one");
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* memory = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  Status failure = memory == MAP_FAILED ? refused(path, "cannot map") : Status();
  ::close(file);  // the mapping keeps the file
  if (!failure.ok()) return failure;
  return std::make_shared<MappedFile>(static_cast<const std::byte*>(memory), size);
}

MappedFile::~MappedFile() {
  if (bytes_ > 0) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

}  // namespace winnow
