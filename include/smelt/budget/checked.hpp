// How is counted without wrapping around? Non-negative 64-bit numbers that stop at a mark instead of overflowing.
#pragma once

#include <cstdint>
#include <limits>

namespace smelt {

/// The mark of a count that does not fit in 64 bits. Every figure of a budget that passes 2^63 - 2 reads so at run
/// time, and so does every figure that it is a part of; the run-time table (budget/table.hpp) turns it into an error.
/// In a constant expression such a figure does not compile: the compiler reports the overflow itself.
inline constexpr std::int64_t overflowed = (std::numeric_limits<std::int64_t>::max)();

/// Whether a figure of a budget is a number (not the mark of an overflow).
[[nodiscard]] constexpr bool fits(std::int64_t figure) noexcept {
  return figure != overflowed;
}

namespace detail {

/// Plain arithmetic for constant expressions: the compiler refuses one that overflows, at no cost in compile time.
using unchecked_count = std::int64_t;

/// The same arithmetic for run time: sums and products of non-negative integers that keep the mark once they have it.
/// Formulas are written once, as templates over one of the two.
struct checked_count {
  std::int64_t value = 0;

  constexpr checked_count() noexcept = default;
  constexpr checked_count(std::int64_t v) noexcept : value(v) {}  // NOLINT: integers are counts
  constexpr explicit operator std::int64_t() const noexcept { return value; }

  friend constexpr checked_count operator+(checked_count a, checked_count b) noexcept {
    return a.value > overflowed - b.value ? overflowed : a.value + b.value;
  }
  friend constexpr checked_count operator*(checked_count a, checked_count b) noexcept {
    return a.value != 0 && b.value > overflowed / a.value ? overflowed : a.value * b.value;
  }
  /// floor(a / b); the mark stays. Precondition: b >= 1.
  friend constexpr checked_count operator/(checked_count a, std::int64_t b) noexcept {
    return a.value == overflowed ? a.value : a.value / b;
  }
  constexpr checked_count& operator+=(checked_count b) noexcept { return *this = *this + b; }
};

}  // namespace detail
}  // namespace smelt
