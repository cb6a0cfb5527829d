// What does a token read from the tokens before it? A softmax-weighted mean of their values.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <smelt/core/error.hpp>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>

namespace smelt::reference_ops {

namespace detail {

inline void check_heads(const char* op, const attention_shape& s) {
  check_at_least(op, "head_dim", s.head_dim, 1);
  check_at_least(op, "kv_heads", s.kv_heads, 1);
  if (s.heads % s.kv_heads != 0) {
    throw error(errc::invalid_argument, std::string(op) + ": heads is " + std::to_string(s.heads) +
                                            ", needs a multiple of the " + std::to_string(s.kv_heads) + " kv_heads");
  }
}

template <class Scalar>
void check_attention(const char* op, const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                     matrix_view<const Scalar> v, std::span<const std::int32_t> first, std::int64_t length,
                     matrix_view<const Scalar> out, std::span<const Scalar> lse) {
  check_heads(op, s);
  const std::int64_t width = std::int64_t{s.heads} * s.head_dim;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_dim;
  check_shape(op, "q", q, q.rows, width);
  check_shape(op, "k", k, q.rows, kv_width);
  check_shape(op, "v", v, q.rows, kv_width);
  check_shape(op, "out", out, q.rows, width);
  check_size(op, "lse", lse, q.rows * s.heads);
  check_first(op, first, q.rows, length);
}

template <class Scalar>
void check_attention_gradients(const char* op, const attention_shape& s, std::int64_t rows,
                               matrix_view<const Scalar> dout, matrix_view<const Scalar> dq,
                               matrix_view<const Scalar> dk, matrix_view<const Scalar> dv) {
  const std::int64_t width = std::int64_t{s.heads} * s.head_dim;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_dim;
  check_shape(op, "dout", dout, rows, width);
  check_shape(op, "dq", dq, rows, width);
  check_shape(op, "dk", dk, rows, kv_width);
  check_shape(op, "dv", dv, rows, kv_width);
}

// The score of query row t and key row j for one head, scaled.
template <std::floating_point Scalar>
Scalar attention_score(const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                       std::int64_t t, std::int64_t j, std::int64_t head) {
  const std::int64_t d = s.head_dim;
  const std::int64_t kv_head = head / (s.heads / s.kv_heads);
  Scalar dot = 0;
  for (std::int64_t i = 0; i < d; ++i) dot += q(t, head * d + i) * k(j, kv_head * d + i);
  return dot / std::sqrt(static_cast<Scalar>(d));
}

// One query row and one head.
template <std::floating_point Scalar>
void attend(const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
            matrix_view<const Scalar> v, std::int64_t first, std::int64_t t, std::int64_t head, matrix_view<Scalar> out,
            std::span<Scalar> lse) {
  const std::int64_t d = s.head_dim;
  const std::int64_t at = head * d;
  const std::int64_t kv_at = head / (s.heads / s.kv_heads) * d;
  Scalar greatest = -std::numeric_limits<Scalar>::infinity();
  for (std::int64_t j = first; j <= t; ++j) greatest = (std::max)(greatest, attention_score(s, q, k, t, j, head));
  Scalar sum = 0;
  for (std::int64_t i = 0; i < d; ++i) out(t, at + i) = 0;
  for (std::int64_t j = first; j <= t; ++j) {
    const Scalar weight = std::exp(attention_score(s, q, k, t, j, head) - greatest);
    sum += weight;
    for (std::int64_t i = 0; i < d; ++i) out(t, at + i) += weight * v(j, kv_at + i);
  }
  for (std::int64_t i = 0; i < d; ++i) out(t, at + i) /= sum;
  lse[t * s.heads + head] = greatest + std::log(sum);
}

// One query row and one head; adds to dq, dk and dv.
template <std::floating_point Scalar>
void attend_backward(const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                     matrix_view<const Scalar> v, std::int64_t first, std::int64_t t, std::int64_t head,
                     matrix_view<const Scalar> out, std::span<const Scalar> lse, matrix_view<const Scalar> dout,
                     matrix_view<Scalar> dq, matrix_view<Scalar> dk, matrix_view<Scalar> dv) {
  const std::int64_t d = s.head_dim;
  const std::int64_t at = head * d;
  const std::int64_t kv_at = head / (s.heads / s.kv_heads) * d;
  const Scalar scale = Scalar{1} / std::sqrt(static_cast<Scalar>(d));
  // The softmax's pull on every score: the sum of weight * dweight, which equals dout . out.
  Scalar mean = 0;
  for (std::int64_t i = 0; i < d; ++i) mean += dout(t, at + i) * out(t, at + i);
  for (std::int64_t j = first; j <= t; ++j) {
    const Scalar weight = std::exp(attention_score(s, q, k, t, j, head) - lse[t * s.heads + head]);
    Scalar dweight = 0;
    for (std::int64_t i = 0; i < d; ++i) dweight += dout(t, at + i) * v(j, kv_at + i);
    const Scalar dscore = weight * (dweight - mean) * scale;
    for (std::int64_t i = 0; i < d; ++i) {
      dq(t, at + i) += dscore * k(j, kv_at + i);
      dk(j, kv_at + i) += dscore * q(t, at + i);
      dv(j, kv_at + i) += weight * dout(t, at + i);
    }
  }
}

}  // namespace detail

/// out[T, heads*d] for q[T, heads*d], k and v [T, kv_heads*d]: query row t attends to key rows first[t] .. t; other
/// rows are never read, so nothing in them can matter. lse[T * heads] = log of the sum of exp(score), token-major.
/// Rows are whole sequences of `length`. Throws invalid_argument for a first[t] outside the sequence or after t.
template <std::floating_point Scalar, ShapeOf<attention_shape> Shape>
void attention(Shape shape, matrix_view<const Scalar> q, matrix_view<const Scalar> k, matrix_view<const Scalar> v,
               std::span<const std::int32_t> first, std::int64_t length, matrix_view<Scalar> out,
               std::span<Scalar> lse) {
  const attention_shape s = shape;
  detail::check_attention<Scalar>("attention", s, q, k, v, first, length, out, lse);
  for (std::int64_t t = 0; t < q.rows; ++t) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      detail::attend<Scalar>(s, q, k, v, first[t], t, head, out, lse);
    }
  }
}

/// dq, dk, dv (overwritten) from dout, with the forward pass's inputs, out and lse.
template <std::floating_point Scalar, ShapeOf<attention_shape> Shape>
void attention_backward(Shape shape, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                        matrix_view<const Scalar> v, std::span<const std::int32_t> first, std::int64_t length,
                        matrix_view<const Scalar> out, std::span<const Scalar> lse, matrix_view<const Scalar> dout,
                        matrix_view<Scalar> dq, matrix_view<Scalar> dk, matrix_view<Scalar> dv) {
  const attention_shape s = shape;
  detail::check_attention<Scalar>("attention_backward", s, q, k, v, first, length, out, lse);
  detail::check_attention_gradients<Scalar>("attention_backward", s, q.rows, dout, dq, dk, dv);
  std::fill(dq.data, dq.data + dq.size(), Scalar{0});
  std::fill(dk.data, dk.data + dk.size(), Scalar{0});
  std::fill(dv.data, dv.data + dv.size(), Scalar{0});
  for (std::int64_t t = 0; t < q.rows; ++t) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      detail::attend_backward<Scalar>(s, q, k, v, first[t], t, head, out, lse, dout, dq, dk, dv);
    }
  }
}

}  // namespace smelt::reference_ops
