// How is a row brought to unit size? Divided by its root mean square, times a gain.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>

namespace smelt::reference_ops {

/// y[T,H] = x * inv_rms * gain[H], with inv_rms[T] = 1 / sqrt(mean(x^2) + eps) saved for the backward pass.
template <std::floating_point Scalar, ShapeOf<norm_shape> Shape>
void rms_norm(Shape shape, matrix_view<const Scalar> x, std::span<const Scalar> gain, matrix_view<Scalar> y,
              std::span<Scalar> inv_rms) {
  const norm_shape s = shape;
  const std::int64_t width = s.width;
  check_shape("rms_norm", "x", x, x.rows, width);
  check_size("rms_norm", "gain", gain, width);
  check_shape("rms_norm", "y", y, x.rows, width);
  check_size("rms_norm", "inv_rms", inv_rms, x.rows);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    Scalar squares = 0;
    for (std::int64_t h = 0; h < width; ++h) squares += x(t, h) * x(t, h);
    inv_rms[t] = Scalar{1} / std::sqrt(squares / static_cast<Scalar>(width) + static_cast<Scalar>(s.eps));
    for (std::int64_t h = 0; h < width; ++h) y(t, h) = x(t, h) * inv_rms[t] * gain[h];
  }
}

/// dx[T,H] += and dgain[H] += from dy[T,H].
template <std::floating_point Scalar, ShapeOf<norm_shape> Shape>
void rms_norm_backward(Shape shape, matrix_view<const Scalar> x, std::span<const Scalar> gain,
                       std::span<const Scalar> inv_rms, matrix_view<const Scalar> dy, matrix_view<Scalar> dx,
                       std::span<Scalar> dgain) {
  const norm_shape s = shape;
  const std::int64_t width = s.width;
  check_shape("rms_norm_backward", "x", x, x.rows, width);
  check_size("rms_norm_backward", "gain", gain, width);
  check_size("rms_norm_backward", "inv_rms", inv_rms, x.rows);
  check_shape("rms_norm_backward", "dy", dy, x.rows, width);
  check_shape("rms_norm_backward", "dx", dx, x.rows, width);
  check_size("rms_norm_backward", "dgain", dgain, width);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    // With n = x * inv_rms: dx = inv_rms (gain dy - n mean(gain dy n)).
    Scalar projection = 0;
    for (std::int64_t h = 0; h < width; ++h) projection += gain[h] * dy(t, h) * x(t, h) * inv_rms[t];
    projection /= static_cast<Scalar>(width);
    for (std::int64_t h = 0; h < width; ++h) {
      const Scalar normal = x(t, h) * inv_rms[t];
      dx(t, h) += inv_rms[t] * (gain[h] * dy(t, h) - normal * projection);
      dgain[h] += dy(t, h) * normal;
    }
  }
}

}  // namespace smelt::reference_ops
