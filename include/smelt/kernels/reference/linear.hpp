// What does a projection compute? A matrix product with weights [out, in], the leading rows and columns of those that
// are stored.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>

namespace smelt::reference_ops {

/// y[T,out] = x[T,in] w[out,in]^T.
template <std::floating_point Scalar, ShapeOf<linear_shape> Shape>
void linear(Shape shape, matrix_view<const Scalar> x, matrix_view<const Scalar> w, matrix_view<Scalar> y) {
  const linear_shape s = shape;
  check_shape("linear", "x", x, x.rows, s.in);
  check_weights("linear", "w", w, s);
  check_shape("linear", "y", y, x.rows, s.out);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      Scalar sum = 0;
      for (std::int64_t i = 0; i < s.in; ++i) sum += x(t, i) * w(o, i);
      y(t, o) = sum;
    }
  }
}

/// y[T,out] = residual[T,out] + scale * x[T,in] w[out,in]^T. `residual` may be y.
template <std::floating_point Scalar, ShapeOf<linear_shape> Shape>
void add_linear(Shape shape, double scale, matrix_view<const Scalar> residual, matrix_view<const Scalar> x,
                matrix_view<const Scalar> w, matrix_view<Scalar> y) {
  const linear_shape s = shape;
  check_shape("add_linear", "residual", residual, x.rows, s.out);
  check_shape("add_linear", "x", x, x.rows, s.in);
  check_weights("add_linear", "w", w, s);
  check_shape("add_linear", "y", y, x.rows, s.out);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      Scalar sum = 0;
      for (std::int64_t i = 0; i < s.in; ++i) sum += x(t, i) * w(o, i);
      y(t, o) = residual(t, o) + static_cast<Scalar>(scale) * sum;
    }
  }
}

/// dx[T,in] = scale * dy[T,out] w, added to dx when `accumulate`.
template <std::floating_point Scalar, ShapeOf<linear_shape> Shape>
void linear_backward_input(Shape shape, double scale, matrix_view<const Scalar> dy, matrix_view<const Scalar> w,
                           matrix_view<Scalar> dx, bool accumulate) {
  const linear_shape s = shape;
  check_shape("linear_backward_input", "dy", dy, dy.rows, s.out);
  check_weights("linear_backward_input", "w", w, s);
  check_shape("linear_backward_input", "dx", dx, dy.rows, s.in);
  for (std::int64_t t = 0; t < dy.rows; ++t) {
    for (std::int64_t i = 0; i < s.in; ++i) {
      Scalar sum = 0;
      for (std::int64_t o = 0; o < s.out; ++o) sum += dy(t, o) * w(o, i);
      sum *= static_cast<Scalar>(scale);
      dx(t, i) = accumulate ? dx(t, i) + sum : sum;
    }
  }
}

/// dw[out,in] += scale * dy[T,out]^T x[T,in].
template <std::floating_point Scalar, ShapeOf<linear_shape> Shape>
void linear_backward_weight(Shape shape, double scale, matrix_view<const Scalar> x, matrix_view<const Scalar> dy,
                            matrix_view<Scalar> dw) {
  const linear_shape s = shape;
  check_shape("linear_backward_weight", "x", x, x.rows, s.in);
  check_shape("linear_backward_weight", "dy", dy, x.rows, s.out);
  check_weights("linear_backward_weight", "dw", dw, s);
  for (std::int64_t o = 0; o < s.out; ++o) {
    for (std::int64_t i = 0; i < s.in; ++i) {
      Scalar sum = 0;
      for (std::int64_t t = 0; t < x.rows; ++t) sum += dy(t, o) * x(t, i);
      dw(o, i) += static_cast<Scalar>(scale) * sum;
    }
  }
}

}  // namespace smelt::reference_ops
