// How far may two budgets lie apart? Percentages as exact integers, usable inside a template argument.
#pragma once

#include <cstdint>
#include <limits>

namespace smelt {

/// A percentage in parts per million: exact, comparable, structural. 1 % is 10'000. Write it as `4_pct` or `0.5_pct`.
struct percent {
  std::int64_t ppm = 0;

  /// The percentage as a fraction of 1; for printing only.
  [[nodiscard]] constexpr double as_fraction() const noexcept { return static_cast<double>(ppm) / 1e6; }

  friend constexpr bool operator==(const percent&, const percent&) = default;
};

/// The tolerances of a comparison, one a budget. Compared as |actual - expected| <= tolerance * expected.
struct within {
  percent flops{40'000};     ///< training FLOPs a token
  percent params{10'000};    ///< parameters
  percent kv_cache{40'000};  ///< KV-cache bytes a token

  friend constexpr bool operator==(const within&, const within&) = default;
};

namespace detail {

/// Called while a literal is parsed, never constexpr: the compiler prints the name of the function that stopped it.
inline void percent_literal_has_at_most_four_decimals_and_is_below_one_billion() {}

/// Parses `digits[.digits]` with at most four decimals into parts per million.
[[nodiscard]] consteval percent parse_percent(const char* text) {
  std::int64_t ppm = 0;
  int decimals = -1;
  for (; *text != 0; ++text) {
    if (*text == '\'') continue;
    if (*text == '.') {
      decimals = 0;
      continue;
    }
    if (*text < '0' || *text > '9' || decimals == 4 || ppm > 100'000'000'000'000)
      percent_literal_has_at_most_four_decimals_and_is_below_one_billion();
    ppm = ppm * 10 + (*text - '0');
    if (decimals >= 0) ++decimals;
  }
  for (int i = decimals < 0 ? 0 : decimals; i < 4; ++i) ppm *= 10;
  return {ppm};
}

}  // namespace detail

inline namespace literals {

/// A percentage with at most four decimals: `4_pct`, `0.5_pct`. Anything else does not compile.
[[nodiscard]] consteval percent operator""_pct(const char* text) {
  return detail::parse_percent(text);
}

}  // namespace literals

/// floor(value * p): the largest difference that `p` allows from `value`; saturates instead of overflowing.
/// Precondition: value >= 0, p.ppm >= 0.
[[nodiscard]] constexpr std::int64_t share_of(std::int64_t value, percent p) noexcept {
  constexpr std::int64_t million = 1'000'000;
  constexpr std::int64_t most = (std::numeric_limits<std::int64_t>::max)();
  const std::int64_t whole = value / million;
  const std::int64_t rest = value % million;
  if (value == 0) return 0;
  if (p.ppm > most / million || (p.ppm != 0 && whole > (most - million) / p.ppm)) return most;
  const std::int64_t high = whole * p.ppm;
  const std::int64_t low = rest * p.ppm / million;
  return high > most - low ? most : high + low;
}

/// Whether |actual - expected| <= tolerance * expected, exactly, without overflow. Precondition: both >= 0.
[[nodiscard]] constexpr bool agrees(std::int64_t actual, std::int64_t expected, percent tolerance) noexcept {
  const std::int64_t difference = actual > expected ? actual - expected : expected - actual;
  return difference <= share_of(expected, tolerance);
}

/// actual / expected in parts per million, to nearest; saturates. Expected 0 gives 1'000'000 when actual is 0 too, and
/// the largest number otherwise. Precondition: both >= 0.
[[nodiscard]] constexpr std::int64_t ratio_ppm(std::int64_t actual, std::int64_t expected) noexcept {
  constexpr std::int64_t million = 1'000'000;
  constexpr std::int64_t most = (std::numeric_limits<std::int64_t>::max)();
  if (expected == 0) return actual == 0 ? million : most;
  std::int64_t a = actual;
  std::int64_t e = expected;
  // The remainder times a million must fit: dropping low bits of numbers above 2^42 changes the ratio by < 1e-12.
  while (e > most / (2 * million)) {
    a >>= 1;
    e >>= 1;
  }
  const std::int64_t whole = a / e;
  if (whole >= most / million) return most;
  return whole * million + ((a % e) * million + e / 2) / e;
}

}  // namespace smelt
