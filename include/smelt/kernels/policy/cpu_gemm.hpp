// Which tile of a matrix product stays in registers?
#pragma once

#include <cstdint>

namespace smelt::policy {

/// A panel of the right operand is two vectors wide. A tile of sums has `rows` rows and `panels` panels. The sums, a
/// row of the panels and one broadcast of the left operand must fit into the registers, and the sums must be enough to
/// hide the latency of a multiply-add. A panel that no other is left for is walked in tiles of `panel_rows` rows.
struct register_tile {
  int rows;
  int panels;
  int panel_rows;
};

/// The tile for a target with so many vector registers. % of the peak on one Zen 5 core, depth 512, November 2026:
///
/// | AVX-512, rows of a tile | 1 | 2 | 3 | 4 | 5 | 6 | 8 | 12 | 14 |
/// |---|---|---|---|---|---|---|---|---|---|
/// | 1 panel, fp32 | 27 | 51 | 69 | 86 | 95 | 99 | 99 | 99 | 99 |
/// | 1 panel, bf16 | 19 | 35 | 51 | 65 | 77 | 87 | 98 | 98 | 99 |
/// | 2 panels, fp32 | 36 | 68 | 98 | 99 | 99 | 99 | | | |
/// | 2 panels, bf16 | 34 | 64 | 88 | 99 | 99 | 98 | | | |
///
/// Two panels are as fast from 4 rows on as one from 8 on, so that few rows, and the last ones, lose little. One panel
/// is walked in 8 rows, not in 12 or 14: clang 19 has no register left for those (82 %). AVX2 has room for one panel: 5
/// rows 95, 6 rows 99.8. A depth that the compiler knows brings nothing: at 32, the shortest that occurs, 256 rows run
/// at 95 % of the peak in fp32 and 91 % in bf16 without, at 94 and 90 % with it.
[[nodiscard]] constexpr register_tile gemm_tile(int registers) noexcept {
  if (registers == 32) return {.rows = 6, .panels = 2, .panel_rows = 8};
  return {.rows = 6, .panels = 1, .panel_rows = 4};
}

/// A left operand is read by columns in place, unless its rows are a multiple of so many floats apart: they would fall
/// on the same few lines of a first-level cache. Depth 256, 256 columns: rows 1,024 apart reach 80 % of the peak in
/// place and 94 % copied; rows 512 apart 96 %.
inline constexpr std::int64_t crowded_stride = 1'024;

/// Rows and columns of one task of a projection's weight gradient, and the tokens it takes at once, so that both
/// operands stay in a second-level cache of 1 MiB.
[[nodiscard]] constexpr std::int64_t weight_gradient_rows(std::int64_t rows) noexcept {
  const std::int64_t quarter = (rows + 3) / 4;
  return quarter < 16 ? 16 : quarter > 96 ? 96 : quarter;
}
inline constexpr std::int64_t weight_gradient_cols = 256;
inline constexpr std::int64_t weight_gradient_depth = 256;

/// Rows of one task of a projection of many rows. Those of fewer rows are cut by columns too, so that a task has this
/// many multiply-adds or reads this many words of the weights.
inline constexpr std::int64_t projection_rows = 192;
inline constexpr std::int64_t projection_task = 1 << 20;
inline constexpr std::int64_t projection_weights = 1 << 16;

}  // namespace smelt::policy
