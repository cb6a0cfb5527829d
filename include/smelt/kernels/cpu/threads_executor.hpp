// Who runs the tasks of an op, without a library for it? The caller and a pool of std::jthreads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <smelt/core/error.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace smelt {

/// A pool of threads - 1 jthreads beside the caller, who takes part. One batch of tasks runs at a time; tasks must not
/// start tasks.
///
/// Every thread begins with a share of the tasks that is its own, so that a row of a matrix stays in the cache of one
/// core from op to op, and then takes from the others. On two Zen 5 cores a pass over 2,048 x 128 floats takes 9 us
/// when each core has the rows it had before, 70 us when it has the other's, and 19 us on one core (November 2026): ops
/// whose tasks are in the order of the rows scale, whatever else they do. Nobody waits for a thread that has not begun:
/// on a loaded machine the caller does it all. Between batches threads watch for the next one for a moment before they
/// sleep.
class threads_executor {
 public:
  /// Throws invalid_argument unless `threads` is at least 1.
  explicit threads_executor(int threads) {
    if (threads < 1) {
      throw error(errc::invalid_argument, "threads is " + std::to_string(threads) + ", needs at least 1");
    }
    pool_ = std::make_unique<pool>(threads);
  }

  /// Tasks that may run at once.
  [[nodiscard]] int threads() const noexcept { return pool_->count; }

  /// Runs f(i) once for every i of [0, n), in any order. When a task throws, no new ones start, and one of the
  /// exceptions comes out.
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    if (n <= 1 || pool_->count == 1) {
      for (std::int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    const std::scoped_lock one_batch(pool_->batch_mutex);
    pool_->run(
        n, [](void* body, std::int64_t i) { (*static_cast<std::remove_reference_t<F>*>(body))(i); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

 private:
  using task_function = void (*)(void*, std::int64_t);

  /// How long a thread watches before it sleeps. Longer than the serial code between two ops of a step takes (a few
  /// microseconds, and 30 where it fills the next batch), shorter than anybody else would notice.
  static constexpr std::chrono::microseconds patience{60};

  /// Cores that this process may use now.
  [[nodiscard]] static int usable_cores() noexcept {
#if defined(__linux__)
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
  }

  /// Where threads may run. Left alone, some systems start or wake a thread beside the one that does it, and leave it
  /// there: so a thread starts, and wakes, on a core of its own. While it works the system may move it.
  class placement {
   public:
    /// From the cores that the calling thread may use.
    placement() noexcept {
#if defined(__linux__)
      if (::sched_getaffinity(0, sizeof all_, &all_) != 0) CPU_ZERO(&all_);
#endif
    }

    [[nodiscard]] static int this_core() noexcept {
#if defined(__linux__)
      return ::sched_getcpu();
#else
      return 0;
#endif
    }

    /// Holds a thread to the core that comes `distance` after core `from`.
    void hold([[maybe_unused]] std::jthread::native_handle_type thread, [[maybe_unused]] int from,
              [[maybe_unused]] int distance) const noexcept {
#if defined(__linux__)
      if (CPU_COUNT(&all_) < 2) return;
      int core = from >= 0 && from < CPU_SETSIZE ? from : 0;
      for (distance %= CPU_COUNT(&all_); distance > 0;) {
        core = (core + 1) % CPU_SETSIZE;
        if (CPU_ISSET(core, &all_)) --distance;
      }
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      ::pthread_setaffinity_np(thread, sizeof one, &one);
#endif
    }

    /// Lets the calling thread run anywhere; it stays where it is until the system moves it.
    void release_this_thread() const noexcept {
#if defined(__linux__)
      if (CPU_COUNT(&all_) > 1) ::sched_setaffinity(0, sizeof all_, &all_);
#endif
    }

   private:
#if defined(__linux__)
    cpu_set_t all_;
#endif
  };

  static void relax() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  /// Watches for a moment. Is `value` no longer `old`?
  template <class T>
  [[nodiscard]] static bool has_changed(const std::atomic<T>& value, T old) noexcept {
    const auto end = std::chrono::steady_clock::now() + patience;
    do {
      for (int i = 0; i < 16; ++i) {
        if (value.load(std::memory_order_acquire) != old) return true;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  /// The tasks that a thread begins with: [end - left, end), taken from the front by anybody.
  struct alignas(64) share {
    std::atomic<std::int64_t> left{0};
    std::int64_t end = 0;

    /// A task that is the caller's alone to run, or -1.
    [[nodiscard]] std::int64_t take() noexcept {
      std::int64_t rest = left.load(std::memory_order_acquire);
      while (rest > 0 &&
             !left.compare_exchange_weak(rest, rest - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      }
      // Whoever holds a task holds up the next batch, which alone moves the end.
      return rest > 0 ? end - rest : -1;
    }
  };

  struct pool {
    explicit pool(int threads)
        : count(threads),
          watch(threads <= usable_cores()),
          shares(std::make_unique<share[]>(static_cast<std::size_t>(threads))),
          asleep(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(threads))) {
      const int core = placement::this_core();
      workers.reserve(static_cast<std::size_t>(threads - 1));
      try {
        for (int i = 1; i < threads; ++i) {
          workers.emplace_back([this, i](const std::stop_token& stop) { work(stop, i); });
          if (watch) places.hold(workers.back().native_handle(), core, i);
        }
      } catch (...) {
        release();
        throw;
      }
    }
    ~pool() { release(); }
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;

    void release() noexcept {
      for (std::jthread& worker : workers) worker.request_stop();
      generation.fetch_add(1, std::memory_order_release);
      generation.notify_all();
      workers.clear();  // joins
    }

    void run(std::int64_t n, task_function run_task, void* task_body) {
      function = run_task;
      body = task_body;
      size = n;
      failure = nullptr;
      finished.store(0, std::memory_order_relaxed);
      for (int i = 0; i < count; ++i) {
        shares[i].end = n * (i + 1) / count;
        shares[i].left.store(shares[i].end - n * i / count, std::memory_order_release);
      }
      for (int i = 1; watch && i < count; ++i) {
        if (asleep[i].load(std::memory_order_relaxed))
          places.hold(workers[static_cast<std::size_t>(i - 1)].native_handle(), placement::this_core(), i);
      }
      generation.fetch_add(1, std::memory_order_release);
      generation.notify_all();
      take_tasks(0);
      for (std::int64_t done = finished.load(std::memory_order_acquire); done != n;
           done = finished.load(std::memory_order_acquire)) {
        if (!watch || !has_changed(finished, done)) finished.wait(done, std::memory_order_acquire);
      }
      if (failure) std::rethrow_exception(failure);
    }

    void work(const std::stop_token& stop, int self) {
      // The first batch may have started before this thread did, so the count starts at the pool's own beginning.
      for (std::uint32_t seen = 0;;) {
        if (!watch || !has_changed(generation, seen)) {
          asleep[self].store(true, std::memory_order_relaxed);
          generation.wait(seen, std::memory_order_acquire);
          asleep[self].store(false, std::memory_order_relaxed);
          if (watch) places.release_this_thread();
        }
        seen = generation.load(std::memory_order_acquire);  // before looking at what came with it
        if (stop.stop_requested()) return;
        take_tasks(self);
      }
    }

    void take_tasks(int self) noexcept {
      std::int64_t ran = 0;
      for (int i = 0; i < count; ++i) {
        share& from = shares[(self + i) % count];
        for (std::int64_t task = from.take(); task >= 0; task = from.take()) {
          ++ran;
          try {
            function(body, task);
          } catch (...) {
            const std::scoped_lock lock(failure_mutex);
            if (!failure) failure = std::current_exception();
            for (int j = 0; j < count; ++j) ran += shares[j].left.exchange(0, std::memory_order_acq_rel);
          }
        }
      }
      if (ran == 0) return;
      const std::int64_t all = size;  // until `finished` says so, this batch is the one that runs
      if (finished.fetch_add(ran, std::memory_order_acq_rel) + ran == all) finished.notify_all();
    }

    const int count;
    const bool watch;  // whether every thread has a core to watch on
    std::mutex batch_mutex;
    std::mutex failure_mutex;
    std::exception_ptr failure;
    task_function function = nullptr;
    void* body = nullptr;
    std::int64_t size = 0;
    const std::unique_ptr<share[]> shares;
    const std::unique_ptr<std::atomic<bool>[]> asleep;
    const placement places;
    alignas(64) std::atomic<std::int64_t> finished{0};
    alignas(64) std::atomic<std::uint32_t> generation{0};  // 32 bits are what the system can wait on
    std::vector<std::jthread> workers;                     // last: they use all of the above
  };

  std::unique_ptr<pool> pool_;  // threads keep its address when the executor moves
};

}  // namespace smelt
