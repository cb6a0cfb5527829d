// How fast does memory deliver? Threads that read an array far larger than any cache.
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
#include <thread>
#include <vector>

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
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) { return (bytes / huge_page + 1) * huge_page; }

  struct release {
    void operator()(std::uint64_t* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::uint64_t, release> memory_;
  std::size_t words_ = 0;
};

/// The sum of words [first, last), in enough independent parts that only memory limits it.
[[nodiscard]] inline std::uint64_t sum_of(const std::uint64_t* words, std::size_t first, std::size_t last) noexcept {
  std::uint64_t sums[16] = {};
  for (std::size_t i = first; i + 16 <= last; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
  std::uint64_t total = 0;
  for (const std::uint64_t s : sums) total += s;
  return total;
}

/// Bytes a second that `threads` threads read together, each a part of the buffer of its own: the best of `passes`.
[[nodiscard]] inline double read_bandwidth(const read_buffer& buffer, int threads, int passes) {
  const auto n = static_cast<std::size_t>(threads);
  std::vector<std::uint64_t> sums(n * 8);  // a cache line each
  std::atomic<int> ready = 0, done = 0, round = 0;
  const auto read_part = [&](std::size_t i) {
    sums[i * 8] += sum_of(buffer.data(), buffer.words() * i / n, buffer.words() * (i + 1) / n);
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < n; ++i)
    others.emplace_back([&, i] {
      for (int r = 1; r <= passes; ++r) {
        ready.fetch_add(1);
        ready.notify_all();
        for (int now = round.load(); now < r; now = round.load()) round.wait(now);
        read_part(i);
        done.fetch_add(1);
        done.notify_all();
      }
    });
  const auto wait_for = [](std::atomic<int>& count, int needed) {
    for (int now = count.load(); now < needed; now = count.load()) count.wait(now);
  };
  double best = 0;
  for (int r = 1; r <= passes; ++r) {
    wait_for(ready, (threads - 1) * r);
    const auto start = std::chrono::steady_clock::now();
    round.store(r);
    round.notify_all();
    read_part(0);
    wait_for(done, (threads - 1) * r);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = (std::max)(best, static_cast<double>(buffer.words() * sizeof(std::uint64_t)) / seconds.count());
  }
  // Looked at, so that the sums are not left out.
  volatile std::uint64_t sink = sums[0];
  static_cast<void>(sink);
  return best;
}

}  // namespace smelt::tool
