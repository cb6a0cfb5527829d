// Where does a difference come from? Means over groups of equal size, by loss or by length, and the tilt between ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <smelt/core/error.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt::law {

/// Groups of equal size (to one) by rank: 0 holds the smallest values. Ties go by place. Throws invalid_argument unless
/// 1 <= groups <= values, not_finite for a value that is not.
[[nodiscard]] inline std::vector<std::size_t> quantile_groups(std::span<const double> values, std::size_t groups = 4) {
  if (groups == 0 || groups > values.size()) {
    throw error(errc::invalid_argument, "groups must be between 1 and the number of values, " +
                                            std::to_string(values.size()) + "; found " + std::to_string(groups));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      throw error(errc::not_finite, "value " + std::to_string(i) + " to group by must be finite");
  }
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(values[i], i); });
  std::vector<std::size_t> group(values.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) group[order[rank]] = rank * groups / order.size();
  return group;
}

/// The mean of the values of each group. Throws invalid_argument for an empty group, mismatch for unequal sizes.
[[nodiscard]] inline std::vector<double> mean_by_group(std::span<const double> values,
                                                       std::span<const std::size_t> group) {
  if (values.size() != group.size()) {
    throw error(errc::mismatch, "as many groups as values are needed, found " + std::to_string(group.size()) + " and " +
                                    std::to_string(values.size()));
  }
  std::size_t count = 0;
  for (const std::size_t g : group) count = (std::max)(count, g + 1);
  std::vector<double> sums(count, 0.0);
  std::vector<double> sizes(count, 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[group[i]] += values[i];
    sizes[group[i]] += 1;
  }
  for (std::size_t g = 0; g < count; ++g) {
    if (sizes[g] == 0) throw error(errc::invalid_argument, "group " + std::to_string(g) + " has no values");
    sums[g] /= sizes[g];
  }
  return sums;
}

/// How much more the last group (the longest, the hardest) has than the first.
[[nodiscard]] inline double tilt(std::span<const double> group_means) {
  if (group_means.size() < 2)
    throw error(errc::invalid_argument, "a tilt needs at least 2 groups, found " + std::to_string(group_means.size()));
  return group_means.back() - group_means.front();
}

}  // namespace smelt::law
