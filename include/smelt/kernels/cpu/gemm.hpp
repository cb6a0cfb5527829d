// How is a matrix product computed? The right operand packed in panels, the left one read in place, and a tile of sums
// held in registers. Every element is one sum over the depth in order (in blocks of policy::gemm_depth), so it depends
// neither on the other rows and columns nor on who computes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <smelt/kernels/cpu/simd.hpp>
#include <smelt/kernels/policy/cpu_gemm.hpp>
#include <utility>

namespace smelt::cpu_ops {

/// The left operand: element (i, k) lies at data[i * row_stride + k * depth_stride], and one of the strides is 1.
struct left_operand {
  const float* data = nullptr;
  std::int64_t row_stride = 1;
  std::int64_t depth_stride = 1;
};

/// The right operand: rows [first, first + depth of the product) of a packed operand with `depth` rows.
struct right_operand {
  const float* packed = nullptr;
  std::int64_t depth = 0;
  std::int64_t first = 0;
};

/// Columns of a panel of the right operand.
inline constexpr std::int64_t panel_width = lanes * policy::gemm_tile.vectors;

/// Floats of a packed [depth, cols] right operand: panels [depth][panel_width], the last one narrower when its columns
/// fit in fewer vectors, and padded with zeros to whole vectors.
[[nodiscard]] constexpr std::int64_t packed_size(std::int64_t depth, std::int64_t cols) noexcept {
  return depth * ((cols + lanes - 1) / lanes * lanes);
}

/// Number of panels of an operand with so many columns.
[[nodiscard]] constexpr std::int64_t panel_count(std::int64_t cols) noexcept {
  return (cols + panel_width - 1) / panel_width;
}

namespace detail {

// Width of the panel that starts at column `first`.
[[nodiscard]] constexpr std::int64_t width_of_panel(std::int64_t first, std::int64_t cols) noexcept {
  return (std::min)(panel_width, (cols - first + lanes - 1) / lanes * lanes);
}

}  // namespace detail

/// Packs panels [first_panel, last_panel) of the operand whose row k of `cols` floats starts at row_of(k).
template <class RowOf>
void pack_rows(RowOf row_of, std::int64_t depth, std::int64_t cols, std::int64_t first_panel, std::int64_t last_panel,
               float* packed) {
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t first = panel * panel_width;
    const std::int64_t width = detail::width_of_panel(first, cols);
    const std::int64_t count = (std::min)(width, cols - first);
    float* to = packed + first * depth;
    for (std::int64_t k = 0; k < depth; ++k, to += width) {
      const float* from = row_of(k) + first;
      std::int64_t i = 0;
      for (; i + lanes <= count; i += lanes) store(to + i, load(from + i));
      if (i < count) store(to + i, load_partial(from + i, count - i));
    }
  }
}

/// Packs panels [first_panel, last_panel) of the operand whose column n of `depth` floats starts at source + n *
/// stride: the transpose of a matrix.
inline void pack_columns(const float* source, std::int64_t stride, std::int64_t depth, std::int64_t cols,
                         std::int64_t first_panel, std::int64_t last_panel, float* packed) {
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    const std::int64_t first = panel * panel_width;
    const std::int64_t width = detail::width_of_panel(first, cols);
    const std::int64_t count = (std::min)(width, cols - first);
    float* to = packed + first * depth;
    const float* from = source + first * stride;
    // Blocks of 16 along the depth read whole cache lines.
    for (std::int64_t k0 = 0; k0 < depth; k0 += 16) {
      const std::int64_t k1 = (std::min)(k0 + 16, depth);
      for (std::int64_t n = 0; n < count; ++n) {
        for (std::int64_t k = k0; k < k1; ++k) to[k * width + n] = from[n * stride + k];
      }
      for (std::int64_t k = k0; k < k1; ++k) {
        for (std::int64_t n = count; n < width; ++n) to[k * width + n] = 0;
      }
    }
  }
}

namespace detail {

// Rows x (Vectors * lanes) sums over `depth`. The panel's row k starts at panel + k * Vectors * lanes.
template <int Rows, int Vectors, bool RowMajor>
[[gnu::always_inline]] inline void multiply_tile(const float* a, std::int64_t stride, const float* panel,
                                                 std::int64_t depth, float* c, std::int64_t c_stride, std::int64_t cols,
                                                 bool add) noexcept {
  floats sums[Rows][Vectors] = {};
  // Three rows share a base pointer: base, base + stride and base + 2 * stride are all one address computation.
  constexpr int bases = (Rows + 2) / 3;
  const float* base[bases];
  for (int i = 0; i < bases; ++i) base[i] = RowMajor ? a + std::int64_t{3} * i * stride : a;
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    floats b[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) b[j] = load(panel + (k * Vectors + j) * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const float left = RowMajor ? base[i / 3][(i % 3) * stride + k] : a[k * stride + i];
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sums[i][j] += left * b[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      float* to = c + i * c_stride + j * lanes;
      const std::int64_t count = cols - j * lanes;
      if (count >= lanes) [[likely]] {
        store(to, add ? load(to) + sums[i][j] : sums[i][j]);
      } else {
        store_partial(to, add ? load_partial(to, count) + sums[i][j] : sums[i][j], count);
      }
    }
  }
}

// All rows of one panel: full tiles, then ever smaller ones.
template <int Rows, int Vectors, bool RowMajor>
inline void multiply_rows(const float* a, std::int64_t stride, const float* panel, std::int64_t depth, float* c,
                          std::int64_t c_stride, std::int64_t rows, std::int64_t cols, bool add) noexcept {
  std::int64_t i = 0;
  for (; i + Rows <= rows; i += Rows) {
    multiply_tile<Rows, Vectors, RowMajor>(RowMajor ? a + i * stride : a + i, stride, panel, depth, c + i * c_stride,
                                           c_stride, cols, add);
  }
  if constexpr (Rows > 1) {
    if (i < rows) {
      constexpr int next = Rows > 3 ? Rows / 2 : Rows - 1;
      multiply_rows<next, Vectors, RowMajor>(RowMajor ? a + i * stride : a + i, stride, panel, depth, c + i * c_stride,
                                             c_stride, rows - i, cols, add);
    }
  }
}

template <bool RowMajor>
[[gnu::noinline]] inline void multiply_panels(const float* a, std::int64_t stride, right_operand b, std::int64_t rows,
                                              std::int64_t depth, std::int64_t cols, float* c, std::int64_t c_stride,
                                              bool add) noexcept {
  static_assert(policy::gemm_tile.vectors == 2);
  for (std::int64_t k = 0; k < depth; k += policy::gemm_depth) {
    const std::int64_t block = (std::min)(policy::gemm_depth, depth - k);
    const float* left = RowMajor ? a + k : a + k * stride;
    for (std::int64_t first = 0; first < cols; first += panel_width) {
      const std::int64_t width = width_of_panel(first, cols);
      const float* panel = b.packed + first * b.depth + (b.first + k) * width;
      const std::int64_t count = (std::min)(width, cols - first);
      if (width == panel_width) {
        multiply_rows<policy::gemm_tile.rows, 2, RowMajor>(left, stride, panel, block, c + first, c_stride, rows, count,
                                                           add || k > 0);
      } else {
        multiply_rows<policy::gemm_tile.rows, 1, RowMajor>(left, stride, panel, block, c + first, c_stride, rows, count,
                                                           add || k > 0);
      }
    }
  }
}

}  // namespace detail

/// c[rows, cols] = a[rows, depth] b[depth, cols], added to c when `add`; rows of c are `c_stride` apart. `cols` is what
/// b was packed with, or less by whole panels. A depth of 0 writes nothing.
inline void multiply(left_operand a, right_operand b, std::int64_t rows, std::int64_t depth, std::int64_t cols,
                     float* c, std::int64_t c_stride, bool add) noexcept {
  if (a.depth_stride == 1) {
    detail::multiply_panels<true>(a.data, a.row_stride, b, rows, depth, cols, c, c_stride, add);
  } else {
    detail::multiply_panels<false>(a.data, a.depth_stride, b, rows, depth, cols, c, c_stride, add);
  }
}

}  // namespace smelt::cpu_ops
