// For how long can an architecture train on what another one's training costs? In tokens, or steps, exactly.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

namespace detail {

/// a b / c to nearest, without overflow on the way; the mark of an overflow when the result does not fit.
/// Precondition: a, b >= 0, 1 <= c <= 2^61.
[[nodiscard]] constexpr std::int64_t scaled_to_nearest(std::int64_t a, std::int64_t b, std::int64_t c) noexcept {
  const std::int64_t whole = b / c;
  const std::int64_t part = b % c;
  std::int64_t quotient = 0;
  std::int64_t rest = 0;
  // Digit by digit of a, the highest first: quotient c + rest is what the digits so far give, times b.
  for (int bit = 62; bit >= 0; --bit) {
    if (quotient > (overflowed - 1) / 2) return overflowed;
    quotient *= 2;
    rest *= 2;
    if ((a >> bit & 1) != 0) {
      if (quotient > overflowed - 1 - whole) return overflowed;
      quotient += whole;
      rest += part;
    }
    const std::int64_t carried = rest / c;
    if (quotient > overflowed - 1 - carried) return overflowed;
    quotient += carried;
    rest %= c;
  }
  return quotient + (rest >= c - rest && quotient < overflowed - 1 ? 1 : 0);
}

}  // namespace detail

/// How much of its training `s` can do for the training FLOPs that `base` spends on `amount`: tokens, or steps of as
/// many tokens as the base's, to nearest. Both are counted under `c`, each on sequences of its own context. 0 when the
/// convention does not cover one of them; the mark of an overflow when a figure does not fit. Precondition: both
/// satisfy the rules of spec/rules.hpp, amount >= 0.
[[nodiscard]] constexpr std::int64_t at_equal_flops(const spec& s, const spec& base, std::int64_t amount,
                                                    const convention& c = conventions::smelt) noexcept {
  const flop_count of = flops(s, c);
  const flop_count of_base = flops(base, c);
  if (!of.covered() || !of_base.covered()) return 0;
  constexpr std::int64_t most = std::int64_t{1} << 61;
  if (of.train_per_token > most || of_base.train_per_token > most || of.train_per_token < 1) return overflowed;
  // Of one context the whole sequences compare exactly.
  if (of.context == of_base.context && of.train <= most && of_base.train <= most)
    return detail::scaled_to_nearest(amount, of_base.train, of.train);
  return detail::scaled_to_nearest(amount, of_base.train_per_token, of.train_per_token);
}

}  // namespace smelt
