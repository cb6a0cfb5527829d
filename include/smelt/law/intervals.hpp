// Between which values does a number lie? Percentiles over draws, those that failed counted and left out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::law {

/// A percentile interval.
struct interval {
  double low = 0;
  double median = 0;
  double high = 0;
  double mean = 0;
  double deviation = 0;  ///< standard deviation, divided by the number of values
  std::int64_t used = 0;
  std::int64_t failed = 0;  ///< values that are not finite
};

/// The q-quantile of sorted values, interpolated linearly between neighbours.
[[nodiscard]] inline double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = (std::min)(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// The central interval that holds `level` of the finite values. Throws invalid_argument unless 0 < level < 1, and
/// not_finite when no value is finite.
[[nodiscard]] inline interval percentile_interval(std::span<const double> values, double level = 0.95) {
  if (!(level > 0 && level < 1))
    throw error(errc::invalid_argument,
                "the level of an interval must lie between 0 and 1, found " + std::to_string(level));
  std::vector<double> kept;
  for (const double v : values)
    if (std::isfinite(v)) kept.push_back(v);
  interval r;
  r.used = static_cast<std::int64_t>(kept.size());
  r.failed = static_cast<std::int64_t>(values.size() - kept.size());
  if (kept.empty()) {
    throw error(errc::not_finite,
                "an interval needs at least one finite value; all " + std::to_string(values.size()) + " draws failed");
  }
  std::ranges::sort(kept);
  for (const double v : kept) r.mean += v / static_cast<double>(kept.size());
  for (const double v : kept) r.deviation += (v - r.mean) * (v - r.mean) / static_cast<double>(kept.size());
  r.deviation = std::sqrt(r.deviation);
  r.low = quantile_of_sorted(kept, (1 - level) / 2);
  r.median = quantile_of_sorted(kept, 0.5);
  r.high = quantile_of_sorted(kept, (1 + level) / 2);
  return r;
}

}  // namespace smelt::law
