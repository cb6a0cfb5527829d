// Where do kernels keep what they need only while they run? In memory that is taken from the system once and reused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

namespace smelt::cpu_ops {

/// A growing stack of uninitialised arrays, given back all at once. After it has served the largest request, serving
/// asks the system for nothing. What it hands out holds whatever was there: nothing may be read before it is written.
class arena {
 public:
  /// Gives back every array. Blocks that grew one by one become one block, so that the next round fits in it.
  void reset() {
    if (blocks_.size() > 1) {
      std::size_t total = 0;
      for (const block& b : blocks_) total += b.size;
      blocks_.clear();
      blocks_.push_back(make_block(total));
    }
    used_ = 0;
  }

  /// `count` elements, aligned to a cache line, valid until the next reset.
  template <class T>
  [[nodiscard]] std::span<T> take(std::int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= line);
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + line - 1) / line * line;
    if (blocks_.empty() || blocks_.back().size - used_ < bytes) {
      const std::size_t last = blocks_.empty() ? std::size_t{0} : blocks_.back().size;
      blocks_.push_back(make_block((std::max)(bytes, last * 2)));
      used_ = 0;
    }
    std::byte* at = blocks_.back().memory.get() + used_;
    used_ += bytes;
    return {reinterpret_cast<T*>(at), static_cast<std::size_t>(count)};
  }

  /// Overwrites all memory that is free, to prove that nothing reads what it has not written.
  void fill(std::byte value) noexcept {
    if (!blocks_.empty()) {
      const block& b = blocks_.back();
      std::memset(b.memory.get() + used_, static_cast<int>(value), b.size - used_);
    }
  }

 private:
  static constexpr std::size_t line = 64;

  struct release {
    void operator()(std::byte* memory) const noexcept { ::operator delete[](memory, std::align_val_t{line}); }
  };
  struct block {
    std::unique_ptr<std::byte[], release> memory;
    std::size_t size = 0;
  };

  [[nodiscard]] static block make_block(std::size_t size) {
    return {
        std::unique_ptr<std::byte[], release>(static_cast<std::byte*>(::operator new[](size, std::align_val_t{line}))),
        size};
  }

  std::vector<block> blocks_;
  std::size_t used_ = 0;  // of the last block
};

}  // namespace smelt::cpu_ops
