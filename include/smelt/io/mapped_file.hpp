// How is a big file read without copying it? As read-only memory the kernel pages in.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <smelt/core/error.hpp>
#include <smelt/io/descriptor.hpp>
#include <span>
#include <utility>

namespace smelt {

/// The bytes of a regular file, mapped read-only. Files replaced by rename (everything smelt writes) stay readable
/// through an old mapping; a file somebody else shortens in place meanwhile raises SIGBUS when it is touched.
class mapped_file {
 public:
  explicit mapped_file(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a pipe by mistake must end in an error, not wait for a writer.
    const descriptor file(path, O_RDONLY | O_NONBLOCK);
    const auto status = file.status();
    if (!S_ISREG(status.st_mode)) {
      throw error(errc::io, "cannot read '" + path.string() + "': it is not a regular file" +
                                (S_ISDIR(status.st_mode) ? " but a directory" : ""));
    }
    if (status.st_size == 0) return;  // mmap refuses an empty mapping
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (memory == MAP_FAILED) detail::throw_errno("map", path, errno);
    bytes_ = {static_cast<const std::byte*>(memory), size};
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  mapped_file(mapped_file&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapped_file() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  /// The whole file; page-aligned; valid as long as this object lives.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace smelt
