// What numbers are computed with? The same wherever they are drawn, small and without a pattern.
#pragma once

#include <cstdint>

namespace smelt::bench {

/// Numbers of magnitude up to 1/2 from a linear congruential generator.
inline void fill(float* values, std::int64_t count, std::uint32_t state) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1'664'525U + 1'013'904'223U;
    values[i] = static_cast<float>(state >> 9) * 0x1p-23F - 0.5F;
  }
}

}  // namespace smelt::bench
