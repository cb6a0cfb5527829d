// How does Muon bring the singular values of a matrix to 1? By odd polynomials X <- a X + b X (X^T X) + c X (X^T X)^2,
// one after the other: products alone, no decomposition (Newton-Schulz iterations of degree 5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <smelt/kernels/backend.hpp>

namespace smelt {

/// The coefficients of x, x^3 and x^5.
struct odd_quintic {
  double x;
  double x3;
  double x5;
};

/// Each is the odd quintic with the least greatest distance from 1 on the interval that those before it left (Amsel and
/// others 2025, "The Polar Express"), the first on [0.02, 1]: singular values from there on end within 0.094 of 1,
/// those below grow up to 55-fold and stay below 1.094. The greatest must be at most 1. Five steps, from 0.001 on, cost
/// two thirds more and reach losses that differ by less than a seed's.
inline constexpr odd_quintic orthogonal_steps[] = {{7.71097024, -22.1137571, 16.2487444},
                                                   {3.21527628, -2.4111724, 0.501300103},
                                                   {2.21830779, -1.59398999, 0.410748053}};

/// What an orthogonal direction [rows, cols] is multiplied by, so that its elements have the root mean square of
/// AdamW's, 0.2, whatever the shape: both optimisers then want much the same learning rate (Liu and others 2025, "Muon
/// is scalable").
[[nodiscard]] inline double muon_scale(const matrix_range& m) noexcept {
  return 0.2 * std::sqrt(static_cast<double>((std::max)(m.rows, m.cols)));
}

/// Floating-point operations of the products that make a matrix orthogonal.
[[nodiscard]] constexpr double orthogonal_flop(const matrix_range& m) noexcept {
  const auto less = static_cast<double>((std::min)(m.rows, m.cols));
  const auto more = static_cast<double>((std::max)(m.rows, m.cols));
  return static_cast<double>(std::size(orthogonal_steps)) * 2 * less * less * (2 * more + less);
}

}  // namespace smelt
