// Which known name did the writer mean? The closest by edit distance, for "did you mean" in error messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace smelt {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string alignment).
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = (std::min)({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = (std::min)(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

/// The known names closest to `name`, best first, ties in the given order; at most `count` of them.
[[nodiscard]] inline std::vector<std::string> nearest_names(std::string_view name,
                                                            const std::vector<std::string>& known,
                                                            std::size_t count = 3) {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // distance, then place: ties keep the given order
  order.reserve(known.size());
  for (std::size_t i = 0; i < known.size(); ++i) order.emplace_back(edit_distance(name, known[i]), i);
  std::ranges::sort(order);
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < (std::min)(count, order.size()); ++i) nearest.push_back(known[order[i].second]);
  return nearest;
}

}  // namespace smelt
