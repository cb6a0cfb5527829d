// How is counted without wrapping around? Non-negative 64-bit numbers that stop at a mark instead of overflowing.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace smelt {

/// The mark of a count that does not fit in 64 bits. Every figure of a budget that passes 2^63 - 2 reads so, and so
/// does every figure that it is a part of.
inline constexpr std::int64_t overflowed = (std::numeric_limits<std::int64_t>::max)();

/// Whether a figure of a budget is a number (not the mark of an overflow).
[[nodiscard]] constexpr bool fits(std::int64_t figure) noexcept {
  return figure != overflowed;
}

/// Stops constant evaluation (it is not constexpr, and its name is what the compiler prints); does nothing at run time.
inline void count_does_not_fit_in_64_bits() noexcept {}

namespace detail {

/// The mark; inside a constant expression, an error that names the reason.
[[nodiscard]] constexpr std::int64_t overflow() noexcept {
  if (std::is_constant_evaluated()) count_does_not_fit_in_64_bits();
  return overflowed;
}

/// A count under construction: sums and products of non-negative integers that keep the mark once they have it.
/// Overflow inside a constant expression does not compile; at run time the figure is `overflowed`, which the run-time
/// table (budget/table.hpp) turns into an error.
struct count {
  std::int64_t value = 0;

  constexpr count() noexcept = default;
  constexpr count(std::int64_t v) noexcept : value(v) {}  // NOLINT: integers are counts

  friend constexpr count operator+(count a, count b) noexcept {
    return a.value > overflowed - b.value ? overflow() : a.value + b.value;
  }
  friend constexpr count operator*(count a, count b) noexcept {
    return a.value != 0 && b.value > overflowed / a.value ? overflow() : a.value * b.value;
  }
  /// floor(a / b); the mark stays. Precondition: b >= 1.
  friend constexpr count operator/(count a, std::int64_t b) noexcept {
    return a.value == overflowed ? a.value : a.value / b;
  }
  constexpr count& operator+=(count b) noexcept { return *this = *this + b; }
};

}  // namespace detail
}  // namespace smelt
