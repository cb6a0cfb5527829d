// Who runs the tasks of an op? The caller, one after the other.
#pragma once

#include <cstdint>
#include <smelt/core/error.hpp>
#include <string>

namespace smelt {

/// Runs every task in the calling thread.
class serial_executor {
 public:
  /// Throws invalid_argument unless `threads` is 1.
  explicit serial_executor(int threads = 1) {
    if (threads != 1) {
      throw error(errc::invalid_argument, "threads of a serial executor is " + std::to_string(threads) + ", needs 1");
    }
  }

  /// Tasks that may run at once.
  [[nodiscard]] int threads() const noexcept { return 1; }

  /// Runs f(i) for every i of [0, n).
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }
};

}  // namespace smelt
