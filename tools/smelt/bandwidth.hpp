// How fast do caches and memory deliver? Threads that read an array again and again.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <smelt/kernels/policy/cpu_caches.hpp>
#include <thread>
#include <vector>

#include "machine.hpp"

namespace smelt::tool {

/// Memory that has been written once, in huge pages where the system gives them.
class read_buffer {
 public:
  explicit read_buffer(std::size_t bytes)
      : memory_(static_cast<std::uint64_t*>(std::aligned_alloc(huge_page, rounded(bytes)))),
        words_(rounded(bytes) / sizeof(std::uint64_t)) {
    if (memory_ == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    ::madvise(memory_.get(), words_ * sizeof(std::uint64_t), MADV_HUGEPAGE);  // it may refuse: small pages do
#endif
    for (std::size_t i = 0; i < words_; ++i) memory_.get()[i] = i;
  }

  [[nodiscard]] const std::uint64_t* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t words() const noexcept { return words_; }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) {
    return (bytes + huge_page - 1) / huge_page * huge_page;
  }

  struct release {
    void operator()(std::uint64_t* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::uint64_t, release> memory_;
  std::size_t words_ = 0;
};

namespace detail {

inline constexpr std::size_t words_at_once = 32;

// The body of sum_of, compiled for what every machine has and for wider vectors. The sums have names, so that they stay
// in registers however little is optimised.
#define SMELT_SUM_WORDS                                                                 \
  using four [[gnu::vector_size(32), gnu::aligned(8), gnu::may_alias]] = std::uint64_t; \
  four a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};                                          \
  for (std::size_t i = first; i + words_at_once <= last; i += words_at_once) {          \
    const four* at = reinterpret_cast<const four*>(words + i);                          \
    a += at[0];                                                                         \
    b += at[1];                                                                         \
    c += at[2];                                                                         \
    d += at[3];                                                                         \
    e += at[4];                                                                         \
    f += at[5];                                                                         \
    g += at[6];                                                                         \
    h += at[7];                                                                         \
  }                                                                                     \
  const four sums = ((a + b) + (c + d)) + ((e + f) + (g + h));                          \
  return sums[0] + sums[1] + sums[2] + sums[3];

[[nodiscard]] inline std::uint64_t sum_plain(const std::uint64_t* words, std::size_t first, std::size_t last) noexcept {
  SMELT_SUM_WORDS
}
#if defined(__x86_64__)
[[nodiscard, gnu::target("avx2")]] inline std::uint64_t sum_avx2(const std::uint64_t* words, std::size_t first,
                                                                 std::size_t last) noexcept {
  SMELT_SUM_WORDS
}
#endif
#undef SMELT_SUM_WORDS

}  // namespace detail

/// The sum of the words [first, last) but for a rest of less than 32, in enough independent parts that only memory
/// limits it.
[[nodiscard]] inline std::uint64_t sum_of(const std::uint64_t* words, std::size_t first, std::size_t last) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return detail::sum_avx2(words, first, last);
#endif
  return detail::sum_plain(words, first, last);
}

/// Bytes a second that `threads` threads read together from the first `bytes` of the buffer, each a part of its own
/// again and again: the best of `passes`, each of which reads at least 16 MiB a thread.
[[nodiscard]] inline double read_bandwidth(const read_buffer& buffer, std::size_t bytes, int threads, int passes) {
  const auto n = static_cast<std::size_t>(threads);
  const std::size_t words = (std::min)(bytes / sizeof(std::uint64_t), buffer.words());
  const std::size_t repeats = (std::size_t{16} << 20) * n / (words * sizeof(std::uint64_t)) + 1;
  std::vector<std::uint64_t> sums(n * 8);  // a cache line each
  std::atomic<int> ready = 0, done = 0, round = 0;
  const auto read_part = [&](std::size_t i) {
    for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
      sums[i * 8] += sum_of(buffer.data(), words * i / n, words * (i + 1) / n);
      asm volatile("" : : : "memory");  // or one sum, taken `repeats` times, would do
    }
  };
  const auto wait_for = [](std::atomic<int>& count, int needed) {
    for (int now = count.load(); now < needed; now = count.load()) count.wait(now);
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < n; ++i)
    others.emplace_back([&, i] {
      for (int r = 1; r <= passes; ++r) {
        ready.fetch_add(1);
        ready.notify_all();
        wait_for(round, r);
        read_part(i);
        done.fetch_add(1);
        done.notify_all();
      }
    });
  double best = 0;
  for (int r = 1; r <= passes; ++r) {
    wait_for(ready, (threads - 1) * r);
    const auto start = std::chrono::steady_clock::now();
    round.store(r);
    round.notify_all();
    read_part(0);
    wait_for(done, (threads - 1) * r);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = (std::max)(best, static_cast<double>(words * sizeof(std::uint64_t) * repeats) / seconds.count());
  }
  // Looked at, so that the sums are not left out.
  volatile std::uint64_t sink = sums[0];
  static_cast<void>(sink);
  return best;
}

/// The most bytes that are read to measure memory: four times the largest cache that cores here share, and no more than
/// an eighth of the memory there is.
[[nodiscard]] inline std::int64_t measured_memory() {
  constexpr std::int64_t most = std::int64_t{128} << 20;
  return physical_memory() > 0 ? (std::min)(most, physical_memory() / 8) : most;
}

/// A place that arrays are read from, and how fast.
struct memory_level {
  const char* name;
  std::int64_t bytes = 0;  ///< what it holds for all threads together
  double bandwidth = 0;    ///< bytes a second
};

/// The second-level cache, the third-level one where the system reports one, and memory, as so many threads read them
/// together.
[[nodiscard]] inline std::vector<memory_level> memory_levels(const read_buffer& buffer, int threads) {
  const std::int64_t second = policy::second_level_cache * threads;
  const std::int64_t third = reported_cache(3);
  const auto most = static_cast<std::int64_t>(buffer.words() * sizeof(std::uint64_t));
  const auto measured = [&](std::int64_t bytes) {
    return read_bandwidth(buffer, static_cast<std::size_t>(bytes), threads, 5);
  };
  // Parts that fit well: a cache has other guests.
  std::vector<memory_level> levels{{"L2", second, measured(second / 2)}};
  if (third > second) levels.push_back({"L3", third, measured((std::min)(third / 4 + second, most))});
  levels.push_back({"memory", most, measured(most)});
  return levels;
}

}  // namespace smelt::tool
