// How often has this program asked for memory?
#pragma once

#include <cstdint>

namespace smelt::test {

/// Calls of operator new so far, in all threads. Defined in allocations_test.cpp of the room that counts them.
[[nodiscard]] std::int64_t allocations() noexcept;

}  // namespace smelt::test
