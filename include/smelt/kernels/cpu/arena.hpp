// Where do kernels keep what they need only while they run? In memory that is taken from the system once and reused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <smelt/core/page_block.hpp>
#include <span>
#include <type_traits>
#include <vector>

namespace smelt::cpu_ops {

/// A growing stack of uninitialised arrays, given back all at once. After it has served the largest request, serving
/// asks the system for nothing. What it hands out holds whatever was there: nothing may be read before it is written.
class arena {
 public:
  /// Gives back every array. Blocks that grew one by one become one block, so that the next round fits in it and finds
  /// its pages there.
  void reset() {
    if (blocks_.size() > 1) {
      const std::size_t total = capacity();
      const std::size_t touched = full_ + used_;
      blocks_.clear();
      blocks_.emplace_back(total);
      blocks_.back().touch(touched);
    }
    full_ = 0;
    used_ = 0;
  }

  /// Bytes of all blocks.
  [[nodiscard]] std::size_t capacity() const noexcept {
    std::size_t total = 0;
    for (const page_block& b : blocks_) total += b.size();
    return total;
  }

  /// Gives back every array and makes room for `bytes` in one block, with its pages.
  void reserve(std::size_t bytes) {
    reset();
    if (capacity() >= bytes) return;
    blocks_.clear();
    blocks_.emplace_back(bytes);
    blocks_.back().touch(bytes);
  }

  /// `count` elements, aligned to a cache line, valid until the next reset.
  template <class T>
  [[nodiscard]] std::span<T> take(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= page_block::line);
    constexpr std::size_t line = page_block::line;
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + line - 1) / line * line;
    if (blocks_.empty() || blocks_.back().size() - used_ < bytes) {
      const std::size_t last = blocks_.empty() ? std::size_t{0} : blocks_.back().size();
      blocks_.emplace_back((std::max)(bytes, last * 2));
      full_ += used_;
      used_ = 0;
    }
    std::byte* at = blocks_.back().data() + used_;
    used_ += bytes;
    return {reinterpret_cast<T*>(at), static_cast<std::size_t>(count)};
  }

  /// Overwrites all memory that is free, to prove that nothing reads what it has not written.
  void fill(std::byte value) noexcept {
    if (!blocks_.empty()) {
      const page_block& b = blocks_.back();
      std::memset(b.data() + used_, static_cast<int>(value), b.size() - used_);
    }
  }

 private:
  std::vector<page_block> blocks_;
  std::size_t full_ = 0;  // bytes handed out from the blocks before the last one
  std::size_t used_ = 0;  // of the last block
};

}  // namespace smelt::cpu_ops
