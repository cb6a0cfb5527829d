// How long is a vector? Its Euclidean norm, without overflow on the way.
#pragma once

#include <cmath>
#include <concepts>
#include <span>

namespace smelt::reference_ops {

/// sqrt(sum of squares). The squares are of elements divided by the greatest, so nothing overflows or vanishes. A NaN
/// gives NaN, otherwise an infinity gives infinity.
template <std::floating_point Scalar>
[[nodiscard]] double norm(std::span<const Scalar> x) noexcept {
  double greatest = 0;
  for (const Scalar element : x) {
    const double magnitude = std::fabs(double(element));
    if (std::isnan(magnitude)) return magnitude;
    if (magnitude > greatest) greatest = magnitude;
  }
  if (greatest == 0 || std::isinf(greatest)) return greatest;
  double sum = 0;
  for (const Scalar element : x) sum += (double(element) / greatest) * (double(element) / greatest);
  return greatest * std::sqrt(sum);
}

}  // namespace smelt::reference_ops
