// How are the solver's systems solved? A handful of unknowns whose number is known at run time: three loops, which
// compile in a tenth of the time that a library's matrices take for every size, and run no slower.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <smelt/law/objective.hpp>

namespace smelt::law::detail {

/// A = L L^T in place, lower triangles. False where A is not positive definite, or not finite.
[[nodiscard]] inline bool factorise(std::size_t n, triangle& a) noexcept {
  for (std::size_t j = 0; j < n; ++j) {
    double* const row = a.data() + triangle_at(j, 0);
    for (std::size_t i = 0; i <= j; ++i) {
      const double* const other = a.data() + triangle_at(i, 0);
      double sum = row[i];
      for (std::size_t k = 0; k < i; ++k) sum -= row[k] * other[k];
      if (i < j) {
        row[i] = sum / other[i];
      } else {
        if (!(sum > 0) || !std::isfinite(sum)) return false;
        row[i] = std::sqrt(sum);
      }
    }
  }
  return true;
}

/// The solution x of L L^T x = b, in place.
inline void solve(std::size_t n, const triangle& l, coefficient_list& b) noexcept {
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < j; ++i) b[j] -= l[triangle_at(j, i)] * b[i];
    b[j] /= l[triangle_at(j, j)];
  }
  for (std::size_t j = n; j-- > 0;) {
    b[j] /= l[triangle_at(j, j)];
    for (std::size_t i = 0; i < j; ++i) b[i] -= l[triangle_at(j, i)] * b[j];
  }
}

/// x^T A x
[[nodiscard]] inline double quadratic(std::size_t n, const triangle& a, const coefficient_list& x) noexcept {
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    double row = 0;
    for (std::size_t i = 0; i < j; ++i) row += 2 * a[triangle_at(j, i)] * x[i];
    sum += (row + a[triangle_at(j, j)] * x[j]) * x[j];
  }
  return sum;
}

/// The least and the largest eigenvalue: Jacobi's rotations, which find small ones to full precision.
struct eigenvalue_range {
  double least;
  double most;
};
[[nodiscard]] inline eigenvalue_range eigenvalues(std::size_t n, const triangle& a) noexcept {
  std::array<std::array<double, most_coefficients>, most_coefficients> m{};
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i <= j; ++i) m[j][i] = m[i][j] = a[triangle_at(j, i)];
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool turned = false;
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = 0; q < p; ++q) {
        if (!(std::fabs(m[p][q]) > 1e-17 * std::sqrt(std::fabs(m[p][p] * m[q][q])))) continue;
        turned = true;
        const double theta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
        const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1);
        const double s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double x = m[k][p];
          const double y = m[k][q];
          m[k][p] = c * x - s * y;
          m[k][q] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = m[p][k];
          const double y = m[q][k];
          m[p][k] = c * x - s * y;
          m[q][k] = s * x + c * y;
        }
      }
    }
    if (!turned) break;
  }
  eigenvalue_range range{m[0][0], m[0][0]};
  for (std::size_t j = 1; j < n; ++j) {
    range.least = (std::min)(range.least, m[j][j]);
    range.most = (std::max)(range.most, m[j][j]);
  }
  return range;
}

}  // namespace smelt::law::detail
