// How is a file replaced so that a crash, a full disk or a kill leaves either the old content or the new, never a mix?
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <smelt/core/error.hpp>
#include <smelt/io/descriptor.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace smelt {

/// Writes a file under a temporary name in the same folder (a rename is only atomic inside one file system); commit()
/// syncs it and renames it over the target. Without a successful commit() the target keeps its old content and the
/// temporary is removed. What is written is streamed: no second copy is held. Errors: errc::io with path and reason.
class atomic_file {
 public:
  explicit atomic_file(const std::filesystem::path& target) : target_(resolve(target)), file_(create(target_)) {}
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  ~atomic_file() { discard(); }

  /// Appends bytes.
  void write(std::span<const std::byte> bytes) {
    require_open();
    try {
      file_.write(bytes);
    } catch (const error& e) {
      discard();
      throw error(e.code(), "cannot save '" + target_.string() + "' (its old content is intact): " + e.what());
    }
  }

  /// Appends text.
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  /// Makes the content durable and gives it its final name. After this nothing more can be written.
  void commit() {
    require_open();
    try {
      file_.sync();
      file_.close();
      if (::rename(file_.path().c_str(), target_.c_str()) != 0) detail::throw_errno("rename", file_.path(), errno);
    } catch (const error& e) {
      discard();
      throw error(e.code(), "cannot save '" + target_.string() + "' (its old content is intact): " + e.what());
    }
    pending_ = false;
    sync_directory(target_.parent_path());
  }

 private:
  /// A link is followed, so that saving through it changes the file it names and not the link; anything that is not
  /// a regular file is refused, because a rename would replace a device or a pipe by a plain file.
  static std::filesystem::path resolve(const std::filesystem::path& target) {
    std::error_code status_error;
    const auto status = std::filesystem::status(target, status_error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      throw error(errc::io, "cannot save '" + target.string() + "': it exists and is not a regular file" +
                                (std::filesystem::is_directory(status) ? " but a directory" : ""));
    }
    if (target.filename().empty()) throw error(errc::io, "cannot save '" + target.string() + "': no file name");
    if (std::filesystem::exists(status) && std::filesystem::is_symlink(std::filesystem::symlink_status(target))) {
      return std::filesystem::canonical(target);
    }
    return target;
  }

  static descriptor create(const std::filesystem::path& target) {
    struct stat old{};
    const bool replaces = ::stat(target.c_str(), &old) == 0;
    // A short name of our own: the target's name plus a suffix could exceed the longest name the file system allows.
    const std::string stem = ".tmp-" + std::to_string(::getpid()) + "-";
    for (std::int64_t n = 0;; ++n) {
      auto file = descriptor::create_new(target.parent_path() / (stem + std::to_string(n)));
      if (!file.is_open()) continue;
      // The new file keeps the permissions of the one it replaces; where that is not allowed the default stands.
      if (replaces) static_cast<void>(::fchmod(file.number(), old.st_mode & 07777) == 0);
      return file;
    }
  }

  void require_open() const {
    if (!pending_) {
      throw error(errc::io,
                  "cannot save '" + target_.string() + "': it was already committed or an earlier write failed");
    }
  }

  void discard() noexcept {
    if (!pending_) return;
    ::unlink(file_.path().c_str());
    pending_ = false;
    try {
      file_.close();  // the space only comes back once the file is closed too
    } catch (const error&) {
      // The file is gone by name; a failure to close it has nothing left to damage.
      return;
    }
  }

  std::filesystem::path target_;
  descriptor file_;
  bool pending_ = true;  // the temporary exists and has not got its final name
};

/// Replaces the content of `path` by `bytes`, all or nothing.
inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  atomic_file file(path);
  file.write(bytes);
  file.commit();
}

/// Replaces the content of `path` by `text`, all or nothing.
inline void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace smelt
