// How do kernels see memory? As row-major matrices they do not own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace smelt {

/// A contiguous row-major matrix somebody else owns: [rows, cols].
template <class T>
struct matrix_view {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  constexpr matrix_view() = default;
  constexpr matrix_view(T* data_, std::int64_t rows_, std::int64_t cols_) : data(data_), rows(rows_), cols(cols_) {}

  /// A view of mutable elements is a view of constant ones.
  /// A template, because a constructor from `matrix_view<T>` itself would be the copy constructor.
  template <class U>
    requires(std::is_same_v<U, std::remove_const_t<T>> && std::is_const_v<T>)
  constexpr matrix_view(const matrix_view<U>& other) : data(other.data), rows(other.rows), cols(other.cols) {}

  constexpr T& operator()(std::int64_t row, std::int64_t col) const { return data[row * cols + col]; }

  /// One row: [cols].
  [[nodiscard]] constexpr std::span<T> row(std::int64_t r) const {
    return {data + r * cols, static_cast<std::size_t>(cols)};
  }

  /// Number of elements.
  [[nodiscard]] constexpr std::int64_t size() const { return rows * cols; }
};

/// Fills the matrix with zeros.
template <class T>
constexpr void set_zero(matrix_view<T> m) {
  std::fill_n(m.data, m.size(), T(0));
}

}  // namespace smelt
