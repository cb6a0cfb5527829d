// How does a sublayer's output enter the residual stream? Times its visit's coefficient.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>

namespace smelt::reference_ops {

/// target += scale * source.
template <std::floating_point Scalar>
void add_scaled(double scale, matrix_view<const Scalar> source, matrix_view<Scalar> target) {
  check_shape("add_scaled", "target", target, source.rows, source.cols);
  for (std::int64_t i = 0; i < source.size(); ++i) target.data[i] += static_cast<Scalar>(scale) * source.data[i];
}

/// target = scale * source.
template <std::floating_point Scalar>
void copy_scaled(double scale, matrix_view<const Scalar> source, matrix_view<Scalar> target) {
  check_shape("copy_scaled", "target", target, source.rows, source.cols);
  for (std::int64_t i = 0; i < source.size(); ++i) target.data[i] = static_cast<Scalar>(scale) * source.data[i];
}

}  // namespace smelt::reference_ops
