// Which number types besides the language's own do kernels compute with?
#pragma once

#include <cstdint>

namespace smelt {

/// The upper half of an IEEE single: 8 bits of exponent, 7 of mantissa. Storage only; kernels convert whole vectors.
struct bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(bf16, bf16) = default;
};

}  // namespace smelt
