// For which caches are the sizes of the CPU's tasks and blocks chosen?
#pragma once

#include <cstdint>

namespace smelt::policy {

/// Bytes of a core's caches that block sizes are chosen for: what server cores of 2021 and later have at least.
/// Constants, because what a processor reports of itself inside a virtual machine is often wrong.
inline constexpr std::int64_t first_level_cache = 48 * 1024;
inline constexpr std::int64_t second_level_cache = 1024 * 1024;

}  // namespace smelt::policy
