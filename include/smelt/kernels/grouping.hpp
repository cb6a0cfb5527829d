// Which tokens does each expert read? The assignments of a batch, sorted by expert.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

namespace smelt {

/// The tokens x active assignments grouped by expert, in token order inside an expert. An assignment is numbered
/// token * active + slot; grouped row g belongs to expert e when offsets[e] <= g < offsets[e + 1].
template <class Int = const std::int32_t>
struct grouping_view {
  std::span<Int> offsets;     ///< [experts + 1]
  std::span<Int> assignment;  ///< [tokens * active] grouped row -> assignment
  std::span<Int> row;         ///< [tokens * active] assignment -> grouped row

  grouping_view() = default;
  grouping_view(std::span<Int> offsets_, std::span<Int> assignment_, std::span<Int> row_)
      : offsets(offsets_), assignment(assignment_), row(row_) {}
  /// A view of mutable indices is a view of constant ones.
  /// A template, because a constructor from `grouping_view<Int>` itself would be the copy constructor.
  template <class Other>
    requires(std::is_same_v<Other, std::int32_t> && !std::is_same_v<Int, std::int32_t>)
  grouping_view(const grouping_view<Other>& other)
      : offsets(other.offsets), assignment(other.assignment), row(other.row) {}
};

}  // namespace smelt
