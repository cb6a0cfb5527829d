// How surprised is the model by the next token? The cross-entropy of a softmax over the vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <string>
#include <vector>

namespace smelt::reference_ops {

namespace detail {

// Table rows behind the vocabulary are padding: allowed, and never read.
template <class Scalar, class Entry>
void check_head(const char* op, const head_shape& s, matrix_view<const Scalar> x, matrix_view<Entry> table,
                std::span<const std::int32_t> targets) {
  check_at_least(op, "vocab", s.vocab, 1);
  check_shape(op, "x", x, x.rows, s.width);
  check_shape(op, "table", table, (std::max)(table.rows, std::int64_t{s.vocab}), s.width);
  check_size(op, "targets", targets, x.rows);
  check_ids(op, "targets", targets, -1, s.vocab);
}

// The arguments of cross_entropy_with_gradient.
template <class Scalar>
void check_head_gradient(const head_shape& s, matrix_view<const Scalar> x, matrix_view<const Scalar> table,
                         std::span<const std::int32_t> targets, std::span<Scalar> losses, matrix_view<Scalar> dx,
                         matrix_view<Scalar> dtable) {
  constexpr const char* op = "cross_entropy_with_gradient";
  check_head<Scalar, const Scalar>(op, s, x, table, targets);
  check_size(op, "losses", losses, x.rows);
  check_shape(op, "dx", dx, x.rows, s.width);
  check_shape(op, "dtable", dtable, table.rows, s.width);
}

template <std::floating_point Scalar>
void head_logits(const head_shape& s, matrix_view<const Scalar> x, matrix_view<const Scalar> table, std::int64_t t,
                 std::span<Scalar> logits) {
  for (std::int64_t v = 0; v < s.vocab; ++v) {
    logits[v] = 0;
    for (std::int64_t h = 0; h < s.width; ++h) logits[v] += x(t, h) * table(v, h);
  }
}

}  // namespace detail

/// losses[T] (nats) and logsumexp[T] of the logits x[T,H] table[V,H]^T against targets[T], and the sum over the
/// targets that count. A target of -1 is no loss: both its entries are 0. Throws invalid_argument, before anything is
/// computed, for a target outside -1 .. vocab - 1.
template <std::floating_point Scalar, ShapeOf<head_shape> Shape>
[[nodiscard]] loss_sum cross_entropy(Shape shape, matrix_view<const Scalar> x, matrix_view<const Scalar> table,
                                     std::span<const std::int32_t> targets, std::span<Scalar> losses,
                                     std::span<Scalar> logsumexp) {
  const head_shape s = shape;
  detail::check_head("cross_entropy", s, x, table, targets);
  check_size("cross_entropy", "losses", losses, x.rows);
  check_size("cross_entropy", "logsumexp", logsumexp, x.rows);
  std::vector<Scalar> logits(static_cast<std::size_t>(s.vocab));
  loss_sum result;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    losses[t] = 0;
    logsumexp[t] = 0;
    if (targets[t] < 0) continue;
    detail::head_logits<Scalar>(s, x, table, t, logits);
    const Scalar greatest = *std::max_element(logits.begin(), logits.end());
    Scalar sum = 0;
    for (const Scalar logit : logits) sum += std::exp(logit - greatest);
    logsumexp[t] = greatest + std::log(sum);
    losses[t] = logsumexp[t] - logits[targets[t]];
    result.nats += double(losses[t]);
    ++result.targets;
  }
  return result;
}

/// dx[T,H] (overwritten) and dtable[V,H] += of scale * the sum of the losses.
template <std::floating_point Scalar, ShapeOf<head_shape> Shape>
void cross_entropy_backward(Shape shape, matrix_view<const Scalar> x, matrix_view<const Scalar> table,
                            std::span<const std::int32_t> targets, std::span<const Scalar> logsumexp, double scale,
                            matrix_view<Scalar> dx, matrix_view<Scalar> dtable) {
  const head_shape s = shape;
  detail::check_head("cross_entropy_backward", s, x, table, targets);
  check_size("cross_entropy_backward", "logsumexp", logsumexp, x.rows);
  check_shape("cross_entropy_backward", "dx", dx, x.rows, s.width);
  check_shape("cross_entropy_backward", "dtable", dtable, table.rows, s.width);
  std::vector<Scalar> logits(static_cast<std::size_t>(s.vocab));
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t h = 0; h < s.width; ++h) dx(t, h) = 0;
    if (targets[t] < 0) continue;
    detail::head_logits<Scalar>(s, x, table, t, logits);
    for (std::int64_t v = 0; v < s.vocab; ++v) {
      const Scalar probability = std::exp(logits[v] - logsumexp[t]);
      const Scalar dlogit = static_cast<Scalar>(scale) * (v == targets[t] ? probability - 1 : probability);
      for (std::int64_t h = 0; h < s.width; ++h) {
        dx(t, h) += dlogit * table(v, h);
        dtable(v, h) += dlogit * x(t, h);
      }
    }
  }
}

/// cross_entropy and cross_entropy_backward at once.
template <std::floating_point Scalar, ShapeOf<head_shape> Shape>
[[nodiscard]] loss_sum cross_entropy_with_gradient(Shape shape, matrix_view<const Scalar> x,
                                                   matrix_view<const Scalar> table,
                                                   std::span<const std::int32_t> targets, double scale,
                                                   std::span<Scalar> losses, matrix_view<Scalar> dx,
                                                   matrix_view<Scalar> dtable) {
  detail::check_head_gradient(shape, x, table, targets, losses, dx, dtable);
  std::vector<Scalar> logsumexp(targets.size());
  const loss_sum sum = cross_entropy<Scalar>(shape, x, table, targets, losses, std::span(logsumexp));
  cross_entropy_backward<Scalar>(shape, x, table, targets, std::span<const Scalar>(logsumexp), scale, dx, dtable);
  return sum;
}

}  // namespace smelt::reference_ops
