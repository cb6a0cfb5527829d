// What do the tokens that go on with a sequence read from it? A softmax-weighted mean of the values kept so far.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/reference/attention.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <vector>

namespace smelt::reference_ops {

namespace detail {

template <class Scalar>
void check_attention_cached(const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                            matrix_view<const Scalar> v, std::int64_t window, matrix_view<const Scalar> out) {
  const char* op = "attention_cached";
  check_heads(op, s);
  const std::int64_t width = std::int64_t{s.heads} * s.head_dim;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_dim;
  check_shape(op, "q", q, q.rows, width);
  check_at_least(op, "rows of k", k.rows, q.rows);
  check_shape(op, "k", k, k.rows, kv_width);
  check_shape(op, "v", v, k.rows, kv_width);
  check_at_least(op, "window", window, 0);
  check_shape(op, "out", out, q.rows, width);
}

// The first key row that query row t of T sees among N.
[[nodiscard]] constexpr std::int64_t first_cached(std::int64_t keys, std::int64_t queries, std::int64_t t,
                                                  std::int64_t window) noexcept {
  const std::int64_t end = keys - queries + t + 1;
  return window > 0 && window < end ? end - window : 0;
}

// Query row t and one head, where `before` keys stand before those of the queries.
template <std::floating_point Scalar>
void attend_cached(const attention_shape& s, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                   matrix_view<const Scalar> v, std::int64_t first, std::int64_t before, std::int64_t t,
                   std::int64_t head, matrix_view<Scalar> out, std::span<Scalar> lse) {
  // Counted from the queries' own keys, key rows are query rows, and those before them have negative numbers.
  const auto own = [&](matrix_view<const Scalar> m) {
    return matrix_view<const Scalar>(m.data + before * m.cols, m.rows - before, m.cols);
  };
  attend<Scalar>(s, q, own(k), own(v), first - before, t, head, out, lse);
}

}  // namespace detail

/// out[T, heads*d] for q[T, heads*d] against k and v [N, kv_heads*d], whose last T rows are the queries' own: query row
/// t attends to key rows up to N - T + t, to the last `window` of them where that is not 0. Other rows are never read.
/// Throws mismatch or invalid_argument for arguments that do not fit.
template <std::floating_point Scalar, ShapeOf<attention_shape> Shape>
void attention_cached(Shape shape, matrix_view<const Scalar> q, matrix_view<const Scalar> k,
                      matrix_view<const Scalar> v, std::int64_t window, matrix_view<Scalar> out) {
  const attention_shape s = shape;
  detail::check_attention_cached<Scalar>(s, q, k, v, window, out);
  std::vector<Scalar> lse(static_cast<std::size_t>(q.rows * s.heads));
  for (std::int64_t t = 0; t < q.rows; ++t) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      detail::attend_cached<Scalar>(s, q, k, v, detail::first_cached(k.rows, q.rows, t, window), k.rows - q.rows, t,
                                    head, out, lse);
    }
  }
}

}  // namespace smelt::reference_ops
