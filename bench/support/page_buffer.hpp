// Where do operands lie? In memory of huge pages that is written before anything is timed: a first touch costs more
// than the work, and small pages would measure address translation.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace smelt::bench {

/// Zeroed memory for `count` values, aligned to 2 MiB. Throws std::bad_alloc.
template <class T>
[[nodiscard]] std::shared_ptr<T[]> make_page_buffer(std::int64_t count) {
  constexpr std::size_t page = std::size_t{2} << 20;
  const std::size_t bytes = (std::size_t(count) * sizeof(T) + page - 1) / page * page;
  void* memory = std::aligned_alloc(page, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // without it, pages are small, and figures lower
  T* values = static_cast<T*>(memory);
  for (std::int64_t i = 0; i < count; ++i) values[i] = T{};
  return std::shared_ptr<T[]>(values, [](T* from) { std::free(from); });
}

}  // namespace smelt::bench
