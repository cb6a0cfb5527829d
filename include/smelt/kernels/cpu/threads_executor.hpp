// Who runs the tasks of an op, without a library for it? The caller and a pool of std::jthreads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <smelt/core/error.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace smelt {

/// A pool of threads - 1 jthreads beside the caller, who takes part. One batch of tasks runs at a time; tasks must not
/// start tasks.
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
  [[nodiscard]] int threads() const noexcept { return static_cast<int>(pool_->workers.size()) + 1; }

  /// Runs f(i) once for every i of [0, n), in any order. When a task throws, no new ones start, and one of the
  /// exceptions comes out.
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    if (n <= 1 || pool_->workers.empty()) {
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

  struct pool {
    explicit pool(int threads) {
      workers.reserve(static_cast<std::size_t>(threads - 1));
      try {
        for (int i = 1; i < threads; ++i) workers.emplace_back([this](const std::stop_token& stop) { work(stop); });
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

    void run(std::int64_t count, task_function run_task, void* task_body) {
      function = run_task;
      body = task_body;
      size = count;
      next.store(0, std::memory_order_relaxed);
      failure = nullptr;
      busy.store(static_cast<int>(workers.size()), std::memory_order_relaxed);
      generation.fetch_add(1, std::memory_order_release);
      generation.notify_all();
      take_tasks();
      for (int left = busy.load(std::memory_order_acquire); left != 0; left = busy.load(std::memory_order_acquire)) {
        busy.wait(left, std::memory_order_acquire);
      }
      if (failure) std::rethrow_exception(failure);
    }

    void work(const std::stop_token& stop) {
      // The first batch may have started before this thread did, so the count starts at the pool's own beginning.
      for (std::uint64_t seen = 0;; ++seen) {
        generation.wait(seen, std::memory_order_acquire);
        if (stop.stop_requested()) return;
        take_tasks();
        if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_all();
      }
    }

    void take_tasks() noexcept {
      for (std::int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < size;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        try {
          function(body, i);
        } catch (...) {
          const std::scoped_lock lock(failure_mutex);
          if (!failure) failure = std::current_exception();
          next.store(size, std::memory_order_relaxed);
        }
      }
    }

    std::mutex batch_mutex;
    std::mutex failure_mutex;
    std::exception_ptr failure;
    task_function function = nullptr;
    void* body = nullptr;
    std::int64_t size = 0;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> busy{0};
    std::atomic<std::uint64_t> generation{0};
    std::vector<std::jthread> workers;  // last: they use all of the above
  };

  std::unique_ptr<pool> pool_;  // threads keep its address when the executor moves
};

}  // namespace smelt
