// Counts every allocation of a program. Included by one file of it that holds nothing else, so that no new or delete is
// inlined beside its replacement.
#pragma once

#include "support/allocations.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> count = 0;

constexpr std::size_t usual = alignof(std::max_align_t);

void* try_to_allocate(std::size_t size, std::size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
}

void* allocate(std::size_t size, std::size_t alignment) {
  void* memory = try_to_allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::int64_t smelt::test::allocations() noexcept {
  return count.load(std::memory_order_relaxed);
}

void* operator new(std::size_t size) {
  return allocate(size, usual);
}
void* operator new[](std::size_t size) {
  return allocate(size, usual);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
// A sanitizer brings nothrow forms of its own, which would not match the deletes below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return try_to_allocate(size, usual);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return try_to_allocate(size, usual);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
