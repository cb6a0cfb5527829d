// By how much do two matrices differ? Element by element.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>

namespace smelt::reference_ops {

/// out = a - b, all of one shape. `out` may be a or b.
template <std::floating_point Scalar>
void difference(matrix_view<const Scalar> a, matrix_view<const Scalar> b, matrix_view<Scalar> out) {
  check_shape("difference", "b", b, a.rows, a.cols);
  check_shape("difference", "out", out, a.rows, a.cols);
  for (std::int64_t i = 0; i < a.size(); ++i) out.data[i] = a.data[i] - b.data[i];
}

}  // namespace smelt::reference_ops
