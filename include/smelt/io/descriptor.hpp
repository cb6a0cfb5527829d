// How are files opened, written whole and synced, with errors that name the path and the reason?
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <smelt/core/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace smelt {

namespace detail {

/// Throws errc::io: "cannot WHAT PATH: text of the errno value".
[[noreturn]] inline void throw_errno(std::string_view what, const std::filesystem::path& path, int number) {
  throw error(errc::io,
              "cannot " + std::string(what) + " '" + path.string() + "': " + std::generic_category().message(number));
}

}  // namespace detail

/// An open file, closed when it goes out of scope. Every failure throws errc::io with the path and the errno text.
class descriptor {
 public:
  /// Opens `path` with open(2) flags; O_CLOEXEC is always added so that child programs never inherit it.
  descriptor(std::filesystem::path path, int flags, mode_t mode = 0666) : path_(std::move(path)) {
    do {
      number_ = ::open(path_.c_str(), flags | O_CLOEXEC, mode);
    } while (number_ < 0 && errno == EINTR);
    if (number_ < 0) detail::throw_errno((flags & O_CREAT) != 0 ? "create" : "open", path_, errno);
  }
  /// Creates `path` for writing; the result is not open when a file of that name exists already.
  [[nodiscard]] static descriptor create_new(std::filesystem::path path, mode_t mode = 0666) {
    descriptor result;
    do {
      result.number_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    } while (result.number_ < 0 && errno == EINTR);
    if (result.number_ < 0 && errno != EEXIST) detail::throw_errno("create", path, errno);
    result.path_ = std::move(path);
    return result;
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  descriptor(descriptor&& other) noexcept : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Writes all of `bytes`, continuing after short writes and signals.
  void write(std::span<const std::byte> bytes) {
    // One call moves at most 2^31 - 4096 bytes on Linux and fails above 2^31 - 1 elsewhere.
    constexpr std::size_t most = std::size_t{1} << 30;
    while (!bytes.empty()) {
      const auto done = ::write(number_, bytes.data(), (std::min)(bytes.size(), most));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) detail::throw_errno("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  /// Reads up to bytes.size() bytes; fewer only at the end of the file.
  [[nodiscard]] std::size_t read(std::span<std::byte> bytes) {
    std::size_t total = 0;
    while (total < bytes.size()) {
      const auto got = ::read(number_, bytes.data() + total, bytes.size() - total);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) detail::throw_errno("read", path_, errno);
      if (got == 0) break;
      total += static_cast<std::size_t>(got);
    }
    return total;
  }

  /// What fstat(2) says.
  [[nodiscard]] struct stat status() const {
    struct stat result{};
    if (::fstat(number_, &result) != 0) detail::throw_errno("examine", path_, errno);
    return result;
  }

  /// Size in bytes.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(status().st_size); }

  /// Cuts or extends the file to `bytes`.
  void resize(std::int64_t bytes) {
    int result = 0;
    do {
      result = ::ftruncate(number_, static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    if (result != 0) detail::throw_errno("resize", path_, errno);
  }

  /// Waits until the content is on the storage device.
  void sync() {
    int result = 0;
    do {
      result = ::fsync(number_);
    } while (result != 0 && errno == EINTR);
    if (result != 0) detail::throw_errno("sync", path_, errno);
  }

  /// Closes now, so that a delayed write error is reported instead of lost.
  void close() {
    const int number = std::exchange(number_, -1);
    // After EINTR the descriptor is already released on Linux; closing again could hit somebody else's file.
    if (number >= 0 && ::close(number) != 0 && errno != EINTR) detail::throw_errno("close", path_, errno);
  }

 private:
  descriptor() = default;

  std::filesystem::path path_;
  int number_ = -1;
};

/// Makes the names inside `directory` durable (a rename is only safe from a power cut once its directory is synced).
inline void sync_directory(const std::filesystem::path& directory) {
  descriptor folder(directory.empty() ? std::filesystem::path(".") : directory, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync a directory and say so with EINVAL; they have nothing better to offer.
  if (::fsync(folder.number()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    detail::throw_errno("sync directory", directory, errno);
  }
}

/// The content of a whole file as bytes in a string.
[[nodiscard]] inline std::string read_file(const std::filesystem::path& path) {
  descriptor file(path, O_RDONLY);
  std::string text;
  constexpr std::size_t step = std::size_t{1} << 16;
  // Grows by what is really there, so a size that lies (a device, a growing log) costs nothing.
  for (;;) {
    const auto old = text.size();
    text.resize(old + step);
    const auto got = file.read(std::as_writable_bytes(std::span(text.data() + old, step)));
    text.resize(old + got);
    if (got < step) return text;
  }
}

}  // namespace smelt
