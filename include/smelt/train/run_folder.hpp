// Who may write into a run's folder? One process at a time.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <smelt/core/error.hpp>
#include <smelt/io/descriptor.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace smelt {

/// The folder of one run, created when missing and locked for as long as this object lives. The lock belongs to the
/// process and disappears with it, whatever ends it; the file ".lock" that stays behind means nothing by itself.
class run_folder {
 public:
  /// Throws errc::io when the folder cannot be made or another process is using it (the message gives its number).
  explicit run_folder(const std::filesystem::path& path) : path_(path), lock_(lock(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  static descriptor lock(const std::filesystem::path& path) {
    std::error_code failure;
    const bool created = std::filesystem::create_directories(path, failure);
    if (failure) throw error(errc::io, "cannot create folder '" + path.string() + "': " + failure.message());
    // A checkpoint is only as durable as the name of the folder it is in.
    if (created) sync_directory(std::filesystem::absolute(path / ".").parent_path().parent_path());
    descriptor file(path / ".lock", O_RDWR | O_CREAT);
    int result = 0;
    do {
      result = ::flock(file.number(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) {
      std::string owner(32, '\0');
      owner.resize(file.read(std::as_writable_bytes(std::span(owner.data(), owner.size()))));
      const auto digits = owner.find_first_not_of("0123456789");
      owner.resize(digits == std::string::npos ? 0 : digits);
      throw error(errc::io, "'" + path.string() + "' is in use by " +
                                (owner.empty() ? "another process" : "process " + owner) +
                                "; wait for it to end or choose another folder");
    }
    if (result != 0) detail::throw_errno("lock", file.path(), errno);
    // For the message above only.
    file.resize(0);
    const auto number = std::to_string(::getpid()) + "\n";
    file.write(std::as_bytes(std::span(number.data(), number.size())));
    return file;
  }

  std::filesystem::path path_;
  descriptor lock_;
};

}  // namespace smelt
