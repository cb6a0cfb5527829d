// Where do large buffers live? In huge pages of their own: a fresh small page costs as much as a thousand products.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace smelt {

/// A piece of zeros, aligned to a cache line. Large ones are mapped in huge pages where the system has them, and take
/// memory when they are first written; the others come from operator new.
class page_block {
 public:
  static constexpr std::size_t line = 64;                         ///< bytes every block is aligned to
  static constexpr std::size_t huge_page = std::size_t{2} << 20;  ///< bytes; blocks of one or more are mapped

  page_block() = default;

  /// Throws std::bad_alloc.
  explicit page_block(std::size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    // Rounding such a size up to a line would give a small one.
    if (bytes > static_cast<std::size_t>((std::numeric_limits<std::ptrdiff_t>::max)())) throw std::bad_alloc();
#if defined(__linux__)
    if (bytes >= huge_page && map()) return;
#endif
    data_ = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{line}));
    std::memset(data_, 0, bytes);
  }

  page_block(page_block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  page_block& operator=(page_block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~page_block() {
#if defined(__linux__)
    if (mapped_ > 0) {
      ::munmap(data_, mapped_);
      return;
    }
#endif
    ::operator delete[](data_, std::align_val_t{line});
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Takes the memory of the first `bytes` now, so that nobody waits for it later. What is there is kept.
  void touch(std::size_t bytes) noexcept {
    constexpr std::size_t page = 4'096;
    const std::size_t end = (std::min)(bytes, size_);
    for (std::size_t at = 0; at < end; at += page) {
      volatile std::byte& first = data_[at];
      first = first;
    }
  }

 private:
#if defined(__linux__)
  /// Maps whole huge pages; false when the system refuses.
  [[nodiscard]] bool map() noexcept {
    const std::size_t length = (size_ + huge_page - 1) / huge_page * huge_page;
    if (length < size_ || length + huge_page < length) return false;
    void* found = ::mmap(nullptr, length + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return false;
    // A huge page begins at a multiple of its size: what lies before the first and behind the last is given back.
    std::byte* begin = static_cast<std::byte*>(found);
    void* aligned = found;
    std::size_t space = length + huge_page;
    aligned = std::align(huge_page, length, aligned, space);
    const std::size_t before = static_cast<std::size_t>(static_cast<std::byte*>(aligned) - begin);
    if (before > 0) ::munmap(begin, before);
    if (before < huge_page) ::munmap(begin + before + length, huge_page - before);
    data_ = begin + before;
    mapped_ = length;
#if defined(MADV_HUGEPAGE)
    static_cast<void>(
        ::madvise(data_, length, MADV_HUGEPAGE));  // refused, the pages are small and all else is the same
#endif
    return true;
  }
#endif

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  // bytes of the mapping; 0 when operator new gave the memory
};

}  // namespace smelt
