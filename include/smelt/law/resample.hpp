// Which rows does a bootstrap draw? Counts for every draw, from random numbers that depend on (seed, draw, place)
// alone; the scheme that published intervals were drawn by is here too, bit for bit.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <string>
#include <vector>

namespace smelt::law {

/// How often each of `units` (rows, or cells of rows) counts in each of `draws`.
struct resampling {
  std::size_t units = 0;
  std::size_t draws = 0;
  std::vector<std::uint32_t> counts;  ///< [draws, units]

  [[nodiscard]] std::uint32_t count(std::size_t draw, std::size_t unit) const { return counts[draw * units + unit]; }
};

namespace detail {

[[nodiscard]] inline resampling empty_resampling(std::size_t units, std::size_t draws) {
  if (units == 0) throw error(errc::invalid_argument, "a resampling needs at least 1 unit to draw from, found 0");
  if (draws == 0) throw error(errc::invalid_argument, "a resampling needs at least 1 draw, found 0");
  return {units, draws, std::vector<std::uint32_t>(units * draws, 0)};
}

}  // namespace detail

/// As many units as there are, with replacement.
[[nodiscard]] inline resampling draw_with_replacement(std::size_t units, std::size_t draws, std::uint64_t seed) {
  resampling r = detail::empty_resampling(units, draws);
  const random_stream random(seed, 0x626F6F74);  // "boot"
  for (std::size_t i = 0; i < draws * units; ++i) ++r.counts[i / units * units + random.below(units, i)];
  return r;
}

/// With replacement, as NumPy's RandomState(seed).choice draws: 32 bits of the Mersenne Twister at a time, masked to
/// the next power of two, drawn again when not below `units`.
[[nodiscard]] inline resampling draw_as_numpy(std::size_t units, std::size_t draws, std::uint32_t seed) {
  resampling r = detail::empty_resampling(units, draws);
  std::mt19937 random(seed);
  std::uint32_t mask = 1;
  while (mask < units - 1) mask = (mask << 1) | 1;
  if (units == 1) mask = 0;
  for (std::size_t i = 0; i < draws * units; ++i) {
    std::uint32_t index = 0;
    do {
      index = static_cast<std::uint32_t>(random()) & mask;
    } while (index >= units);
    ++r.counts[i / units * units + index];
  }
  return r;
}

/// Each draw leaves out round(fraction * units) of the units, every set of them equally likely. Throws invalid_argument
/// unless 0 < fraction < 1 and some units stay.
[[nodiscard]] inline resampling draw_leaving_out(std::size_t units, double fraction, std::size_t draws,
                                                 std::uint64_t seed) {
  resampling r = detail::empty_resampling(units, draws);
  const double share = std::round(fraction * static_cast<double>(units));
  if (!(fraction > 0 && fraction < 1) || !(share >= 1 && share < static_cast<double>(units))) {
    throw error(errc::invalid_argument, "the fraction left out must leave out at least 1 and keep at least 1 of " +
                                            std::to_string(units) + " units, found " + std::to_string(fraction));
  }
  const auto out = static_cast<std::size_t>(share);
  for (std::size_t draw = 0; draw < draws; ++draw) {
    const random_stream random(seed, (std::uint64_t{draw} << 32) | 0x6F757473);
    for (std::size_t i = 0; i < units; ++i) r.counts[draw * units + i] = permuted(i, units, random) >= out ? 1u : 0u;
  }
  return r;
}

}  // namespace smelt::law
