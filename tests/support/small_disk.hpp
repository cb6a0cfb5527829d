// What happens when the disk fills up? A file system with little room, mounted over a folder.
#pragma once

#include <sys/mount.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace smelt_test {

/// A memory file system of `size` bytes on a folder, as long as this lives; it is not there when the process may not
/// mount.
class small_disk {
 public:
  small_disk(const std::filesystem::path& folder, std::size_t size)
      : folder_(folder),
        mounted_(::mount("tmpfs", folder.c_str(), "tmpfs", 0, ("size=" + std::to_string(size)).c_str()) == 0) {}
  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;
  ~small_disk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }

  [[nodiscard]] bool mounted() const noexcept { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool mounted_;
};

}  // namespace smelt_test
