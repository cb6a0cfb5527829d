// Which tokens does each expert read? A stable counting sort of the assignments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>

namespace smelt::reference_ops {

/// Groups ids[T*k] by expert, in token order inside an expert. Throws invalid_argument for an id that is no expert.
template <ShapeOf<router_shape> Shape>
void group_by_expert(Shape shape, std::span<const std::int32_t> ids, grouping_view<std::int32_t> grouping) {
  const router_shape s = shape;
  const auto assignments = static_cast<std::int64_t>(ids.size());
  check_grouping("group_by_expert", grouping, s.experts, assignments);
  check_ids("group_by_expert", "ids", ids, 0, s.experts);
  const std::span<std::int32_t> offsets = grouping.offsets;
  std::fill(offsets.begin(), offsets.end(), 0);
  for (const std::int32_t id : ids) ++offsets[id + 1];
  for (std::int64_t e = 0; e < s.experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] runs ahead to the end of its group, then every entry moves back one place.
  for (std::int64_t a = 0; a < assignments; ++a) {
    const std::int32_t g = offsets[ids[a]]++;
    grouping.assignment[g] = static_cast<std::int32_t>(a);
    grouping.row[a] = g;
  }
  for (std::int64_t e = s.experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

}  // namespace smelt::reference_ops
