// Which executor shows an op that does not wait for an update of its arrays? One that leaves the update to the end.
#pragma once

#include <cstdint>

namespace smelt_test {

/// Runs tasks in the calling thread and says that there are two: the update's, which is the first, after all others,
/// so that whoever does not ask for updated arrays gets old ones.
struct update_last {
  [[nodiscard]] int threads() const noexcept { return 2; }
  template <class F>
  void for_each(std::int64_t n, F&& f) {
    for (std::int64_t i = n - 1; i >= 0; --i) f(i);
  }
};

}  // namespace smelt_test
