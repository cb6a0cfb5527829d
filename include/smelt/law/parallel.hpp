// How is independent work spread over cores? By index: who does what differs from run to run, what comes out does not.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace smelt::law {

/// How many threads are used for `asked` (0: one a core) and `count` pieces of work.
[[nodiscard]] inline std::size_t threads_for(std::size_t asked, std::size_t count) noexcept {
  const std::size_t cores = (std::max)(std::size_t{std::thread::hardware_concurrency()}, std::size_t{1});
  return (std::max)((std::min)(asked == 0 ? cores : asked, count), std::size_t{1});
}

/// Calls make_worker() once a thread, and what it returned with each index below `count` once. A worker owns what it
/// needs to compute; what it finds goes to a place of the index's own. The error of the lowest index is thrown.
template <class MakeWorker>
void for_indices(std::size_t count, std::size_t threads, MakeWorker&& make_worker) {
  threads = threads_for(threads, count);
  constexpr std::size_t grain = 8;
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::exception_ptr failure;
  std::size_t failed_at = count;
  const auto work = [&] {
    std::size_t at = 0;
    try {
      auto worker = make_worker();
      for (;;) {
        const std::size_t first = next.fetch_add(grain);
        if (first >= count) return;
        for (at = first; at < (std::min)(first + grain, count); ++at) worker(at);
      }
    } catch (...) {
      const std::lock_guard lock(guard);
      if (at <= failed_at) {
        failed_at = at;
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace smelt::law
