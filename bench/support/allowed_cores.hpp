// How many cores may this process use? Fewer than the machine has when it was started with some of them only.
#pragma once

#include <sched.h>

#include <algorithm>

namespace smelt::bench {

[[nodiscard]] inline int allowed_cores() noexcept {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return (std::max)(1, CPU_COUNT(&cores));
}

}  // namespace smelt::bench
