// What does attention read? The normed stream projected to queries, keys and values; queries and keys are normed where
// the shape says so, and turned by their positions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/reference/linear.hpp>
#include <smelt/kernels/reference/rms_norm.hpp>
#include <smelt/kernels/reference/rotary.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::reference_ops {

namespace detail {

template <class T>
void check_attention_weights(const char* op, const attention_input_shape& s, const attention_input_weights<T>& w) {
  check_size(op, "weights.norm", w.norm, s.width);
  check_at_least(op, "stored_width", weight_width(s), s.width);
  check_shape(op, "weights.query", w.query, query_width(s), weight_width(s));
  check_shape(op, "weights.key", w.key, kv_width(s), weight_width(s));
  check_shape(op, "weights.value", w.value, kv_width(s), weight_width(s));
  if (s.norm == qk_norm::none) return;
  check_size(op, "weights.query_norm", w.query_norm, query_norm_width(s));
  check_size(op, "weights.key_norm", w.key_norm, key_norm_width(s));
}

template <class T>
void check_query_key_value(const char* op, const attention_input_shape& s, std::int64_t rows,
                           const query_key_value<T>& a) {
  check_shape(op, "query", a.query, rows, query_width(s));
  check_shape(op, "key", a.key, rows, kv_width(s));
  check_shape(op, "value", a.value, rows, kv_width(s));
}

template <class Scalar, class T>
void check_attention_input(const char* op, const attention_input_shape& s, matrix_view<const Scalar> x,
                           const attention_input_weights<const Scalar>& w, std::span<const std::int32_t> positions,
                           const attention_input_saved<T>& saved) {
  check_at_least(op, "width", s.width, 1);
  check_at_least(op, "heads", s.heads, 1);
  check_at_least(op, "kv_heads", s.kv_heads, 1);
  check_at_least(op, "head_dim", s.head_dim, 1);
  if (s.head_dim % 2 != 0) {
    throw error(errc::invalid_argument,
                std::string(op) + ": head_dim is " + std::to_string(s.head_dim) + ", needs an even number");
  }
  check_shape(op, "x", x, x.rows, s.width);
  check_attention_weights(op, s, w);
  check_size(op, "positions", positions, x.rows);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] < 0) {
      throw error(errc::invalid_argument, std::string(op) + ": positions[" + std::to_string(t) + "] is " +
                                              std::to_string(positions[t]) + ", needs at least 0");
    }
  }
  check_size(op, "saved.inv_rms", saved.inv_rms, x.rows);
  if (s.norm == qk_norm::none) return;
  check_shape(op, "saved.raw_query", saved.raw_query, x.rows, query_width(s));
  check_shape(op, "saved.raw_key", saved.raw_key, x.rows, kv_width(s));
  check_size(op, "saved.query_inv_rms", saved.query_inv_rms, x.rows * query_width(s) / query_norm_width(s));
  check_size(op, "saved.key_inv_rms", saved.key_inv_rms, x.rows * kv_width(s) / key_norm_width(s));
}

// The projection to `heads` heads.
[[nodiscard]] constexpr linear_shape heads_shape(const attention_input_shape& s, int heads) noexcept {
  return {.in = s.width, .out = heads * s.head_dim, .stored_in = weight_width(s)};
}

// A matrix of heads seen as rows as wide as their norm.
template <class T>
[[nodiscard]] matrix_view<T> rows_of_width(matrix_view<T> m, std::int64_t width) noexcept {
  return {m.data, m.size() / width, width};
}

}  // namespace detail

/// query, key and value [T, ...] for x[T,H]: n = RMSNorm(x), projected by the three weights; queries and keys are then
/// normed as the shape says and turned by positions[T] (pair i of every head by position * base^(-2i/d)). Throws
/// invalid_argument for an odd head size or a negative position.
template <std::floating_point Scalar, ShapeOf<attention_input_shape> Shape>
void attention_input(Shape shape, matrix_view<const Scalar> x, const attention_input_weights<const Scalar>& w,
                     std::span<const std::int32_t> positions, const attention_input_saved<Scalar>& saved,
                     const query_key_value<Scalar>& out) {
  const attention_input_shape s = shape;
  detail::check_attention_input<Scalar>("attention_input", s, x, w, positions, saved);
  detail::check_query_key_value("attention_input", s, x.rows, out);
  std::vector<Scalar> normed(static_cast<std::size_t>(x.size()));
  const matrix_view<Scalar> n(normed.data(), x.rows, x.cols);
  rms_norm<Scalar>(norm_shape{s.width, s.eps}, x, w.norm, n, saved.inv_rms);
  const auto project = [&](int heads, matrix_view<const Scalar> weight, matrix_view<Scalar> to) {
    linear<Scalar>(detail::heads_shape(s, heads), n, weight, to);
  };
  const auto norm = [&](int width, matrix_view<const Scalar> raw, std::span<const Scalar> gain, matrix_view<Scalar> to,
                        std::span<Scalar> inv_rms) {
    rms_norm<Scalar>(norm_shape{width, s.eps}, detail::rows_of_width(raw, width), gain,
                     detail::rows_of_width(to, width), inv_rms);
  };
  const bool normed_heads = s.norm != qk_norm::none;
  project(s.heads, w.query, normed_heads ? saved.raw_query : out.query);
  project(s.kv_heads, w.key, normed_heads ? saved.raw_key : out.key);
  project(s.kv_heads, w.value, out.value);
  if (normed_heads) {
    norm(query_norm_width(s), saved.raw_query, w.query_norm, out.query, saved.query_inv_rms);
    norm(key_norm_width(s), saved.raw_key, w.key_norm, out.key, saved.key_inv_rms);
  }
  rotary<Scalar>(rotary_shape{s.heads, s.head_dim, s.rotary_base}, out.query, positions);
  rotary<Scalar>(rotary_shape{s.kv_heads, s.head_dim, s.rotary_base}, out.key, positions);
}

/// dx[T,H] += and the gradients of all weights += from dout, with the forward pass's inputs and what it saved.
template <std::floating_point Scalar, ShapeOf<attention_input_shape> Shape>
void attention_input_backward(Shape shape, matrix_view<const Scalar> x, const attention_input_weights<const Scalar>& w,
                              std::span<const std::int32_t> positions, const attention_input_saved<const Scalar>& saved,
                              const query_key_value<const Scalar>& dout, matrix_view<Scalar> dx,
                              const attention_input_weights<Scalar>& dw) {
  const attention_input_shape s = shape;
  detail::check_attention_input<Scalar>("attention_input_backward", s, x, w, positions, saved);
  detail::check_query_key_value("attention_input_backward", s, x.rows, dout);
  check_shape("attention_input_backward", "dx", dx, x.rows, s.width);
  detail::check_attention_weights("attention_input_backward", s, dw);
  std::vector<Scalar> normed(static_cast<std::size_t>(x.size()));
  std::vector<Scalar> again(static_cast<std::size_t>(x.rows));
  const matrix_view<Scalar> n(normed.data(), x.rows, x.cols);
  rms_norm<Scalar>(norm_shape{s.width, s.eps}, x, w.norm, n, again);
  std::vector<Scalar> dnormed(normed.size(), Scalar{0});
  const matrix_view<Scalar> dn(dnormed.data(), x.rows, x.cols);
  // One of the three: rotated back and through its norm where it has one, then through the projection.
  const auto one = [&](int heads, int norm_width, matrix_view<const Scalar> from, matrix_view<const Scalar> weight,
                       matrix_view<Scalar> dweight, matrix_view<const Scalar> raw, std::span<const Scalar> gain,
                       std::span<const Scalar> inv_rms, std::span<Scalar> dgain) {
    std::vector<Scalar> gradient(from.data, from.data + from.size());
    matrix_view<Scalar> d(gradient.data(), from.rows, from.cols);
    std::vector<Scalar> before(gradient.size(), Scalar{0});
    if (norm_width >= 0) rotary_backward<Scalar>(rotary_shape{heads, s.head_dim, s.rotary_base}, d, positions);
    if (norm_width > 0) {
      const matrix_view<Scalar> draw(before.data(), from.rows, from.cols);
      rms_norm_backward<Scalar>(norm_shape{norm_width, s.eps}, detail::rows_of_width(raw, norm_width), gain, inv_rms,
                                detail::rows_of_width(matrix_view<const Scalar>(d), norm_width),
                                detail::rows_of_width(draw, norm_width), dgain);
      d = draw;
    }
    const linear_shape projection = detail::heads_shape(s, heads);
    linear_backward_weight<Scalar>(projection, 1.0, n, d, dweight);
    linear_backward_input<Scalar>(projection, 1.0, d, weight, dn, true);
  };
  const bool normed_heads = s.norm != qk_norm::none;
  one(s.heads, normed_heads ? query_norm_width(s) : 0, dout.query, w.query, dw.query, saved.raw_query, w.query_norm,
      saved.query_inv_rms, dw.query_norm);
  one(s.kv_heads, normed_heads ? key_norm_width(s) : 0, dout.key, w.key, dw.key, saved.raw_key, w.key_norm,
      saved.key_inv_rms, dw.key_norm);
  one(s.kv_heads, -1, dout.value, w.value, dw.value, {}, {}, {}, {});
  rms_norm_backward<Scalar>(norm_shape{s.width, s.eps}, x, w.norm, saved.inv_rms, dn, dx, dw.norm);
}

}  // namespace smelt::reference_ops
