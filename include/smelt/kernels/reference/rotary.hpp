// How does a query or key know its position? Pairs (i, i + d/2) of a head turn by an angle proportional to it.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>

namespace smelt::reference_ops {

namespace detail {

template <std::floating_point Scalar>
void rotate(const char* op, const rotary_shape& s, matrix_view<Scalar> x, std::span<const std::int32_t> positions,
            double direction) {
  check_shape(op, "x", x, x.rows, std::int64_t{s.heads} * s.head_dim);
  check_size(op, "positions", positions, x.rows);
  if (s.head_dim % 2 != 0) {
    throw error(errc::invalid_argument,
                std::string(op) + ": head_dim is " + std::to_string(s.head_dim) + ", needs an even number");
  }
  const std::int64_t half = s.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(double(s.base), -2.0 * double(i) / double(s.head_dim));
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const double angle = direction * double(positions[t]) * frequency;
      const auto cosine = static_cast<Scalar>(std::cos(angle));
      const auto sine = static_cast<Scalar>(std::sin(angle));
      for (std::int64_t head = 0; head < s.heads; ++head) {
        Scalar& low = x(t, head * s.head_dim + i);
        Scalar& high = x(t, head * s.head_dim + i + half);
        const Scalar turned_low = low * cosine - high * sine;
        high = high * cosine + low * sine;
        low = turned_low;
      }
    }
  }
}

}  // namespace detail

/// Rotates x[T, heads * d] in place: pair i of every head by positions[t] * base^(-2i/d).
template <std::floating_point Scalar, ShapeOf<rotary_shape> Shape>
void rotary(Shape shape, matrix_view<Scalar> x, std::span<const std::int32_t> positions) {
  detail::rotate<Scalar>("rotary", shape, x, positions, 1.0);
}

/// Rotates a gradient back, in place.
template <std::floating_point Scalar, ShapeOf<rotary_shape> Shape>
void rotary_backward(Shape shape, matrix_view<Scalar> dx, std::span<const std::int32_t> positions) {
  detail::rotate<Scalar>("rotary_backward", shape, dx, positions, -1.0);
}

}  // namespace smelt::reference_ops
