// How do many arrays share one block of memory? They are cut from it in order; the same cuts without memory measure it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

namespace smelt {

/// Cuts arrays from a block of zeros that somebody else owns. Without a block it hands out empty arrays and counts.
class carver {
 public:
  /// Measures.
  carver() = default;
  /// Cuts `block`; an empty one is measured.
  explicit carver(std::span<std::byte> block) noexcept : block_(block) {}

  /// The next `count` elements, aligned to a cache line. Throws std::bad_alloc when the block has no room for them.
  template <class T>
  [[nodiscard]] std::span<T> take(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= line);
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + line - 1) / line * line;
    const std::size_t at = used_;
    used_ += bytes;
    if (block_.empty()) return {};
    if (used_ > block_.size()) throw std::bad_alloc();
    return {reinterpret_cast<T*>(block_.data() + at), static_cast<std::size_t>(count)};
  }

  /// Bytes cut or counted so far.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  static constexpr std::size_t line = 64;
  std::span<std::byte> block_;
  std::size_t used_ = 0;
};

}  // namespace smelt
