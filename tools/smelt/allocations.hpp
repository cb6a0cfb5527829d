// How often has this program asked for memory?
#pragma once

#include <cstdint>

namespace smelt::tool {

/// Calls of operator new so far, in all threads.
[[nodiscard]] std::int64_t allocations() noexcept;

}  // namespace smelt::tool
