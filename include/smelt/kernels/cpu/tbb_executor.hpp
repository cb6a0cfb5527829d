// Who runs the tasks of an op, with oneTBB? An arena of its threads.
#pragma once

#if defined(SMELT_HAS_TBB) && __has_include(<tbb/task_arena.h>)
#define SMELT_TBB_EXECUTOR 1

#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <smelt/core/error.hpp>
#include <string>

namespace smelt {

/// Runs tasks in a oneTBB arena of its own. oneTBB has as many workers as the process may use cores; asking for more
/// gives those.
class tbb_executor {
 public:
  /// Throws invalid_argument unless `threads` is at least 1.
  explicit tbb_executor(int threads) {
    if (threads < 1) {
      throw error(errc::invalid_argument, "threads is " + std::to_string(threads) + ", needs at least 1");
    }
    arena_ = std::make_unique<tbb::task_arena>((std::min)(threads, tbb::info::default_concurrency()));
  }

  /// Tasks that may run at once.
  [[nodiscard]] int threads() const noexcept { return arena_->max_concurrency(); }

  /// Runs f(i) once for every i of [0, n), in any order. When a task throws, its exception comes out.
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    if (n <= 1 || threads() == 1) {
      for (std::int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    arena_->execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::int64_t>(0, n, 1),
          [&](const tbb::blocked_range<std::int64_t>& range) {
            for (std::int64_t i = range.begin(); i < range.end(); ++i) f(i);
          },
          tbb::simple_partitioner{});
    });
  }

 private:
  std::unique_ptr<tbb::task_arena> arena_;  // an arena does not move
};

}  // namespace smelt
#endif
