// What do the chosen experts do to a token? Each a SwiGLU feed-forward, summed with the router's weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/check.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>

namespace smelt::reference_ops {

namespace detail {

// The stored weights of all experts, or their gradients.
template <class T>
void check_expert_weights(const char* op, const experts_shape& s, const char* gate_name, matrix_view<T> gate,
                          const char* up_name, matrix_view<T> up, const char* down_name, matrix_view<T> down) {
  check_at_least(op, "stored_width", weight_width(s), s.width);
  check_at_least(op, "stored_hidden", weight_hidden(s), s.hidden);
  check_shape(op, gate_name, gate, std::int64_t{s.experts} * weight_hidden(s), weight_width(s));
  check_shape(op, up_name, up, std::int64_t{s.experts} * weight_hidden(s), weight_width(s));
  check_shape(op, down_name, down, std::int64_t{s.experts} * weight_width(s), weight_hidden(s));
}

// Everything both directions share: sizes of inputs, weights, grouping and saved gate and up.
template <class Scalar, class Saved>
void check_experts(const char* op, const experts_shape& s, matrix_view<const Scalar> x,
                   matrix_view<const Scalar> w_gate, matrix_view<const Scalar> w_up, matrix_view<const Scalar> w_down,
                   const grouping_view<>& grouping, matrix_view<const Scalar> weights, matrix_view<Saved> gate,
                   matrix_view<Saved> up) {
  check_shape(op, "x", x, x.rows, s.width);
  check_expert_weights(op, s, "w_gate", w_gate, "w_up", w_up, "w_down", w_down);
  check_at_least(op, "active", s.active, 1);
  check_at_least(op, "width", s.width, 1);
  check_at_least(op, "hidden", s.hidden, 1);
  check_grouping(op, grouping, s.experts, x.rows * s.active);
  check_groups(op, grouping);
  check_shape(op, "weights", weights, x.rows, s.active);
  check_shape(op, "gate", gate, x.rows * s.active, s.hidden);
  check_shape(op, "up", up, x.rows * s.active, s.hidden);
}

template <class Scalar>
void check_expert_gradients(const char* op, const experts_shape& s, std::int64_t tokens, matrix_view<const Scalar> dy,
                            matrix_view<const Scalar> dx, matrix_view<const Scalar> dw_gate,
                            matrix_view<const Scalar> dw_up, matrix_view<const Scalar> dw_down,
                            matrix_view<const Scalar> dweights) {
  check_shape(op, "dy", dy, tokens, s.width);
  check_shape(op, "dx", dx, tokens, s.width);
  check_expert_weights(op, s, "dw_gate", dw_gate, "dw_up", dw_up, "dw_down", dw_down);
  check_shape(op, "dweights", dweights, tokens, s.active);
}

template <std::floating_point Scalar>
[[nodiscard]] Scalar sigmoid(Scalar x) noexcept {
  return Scalar{1} / (Scalar{1} + std::exp(-x));
}

}  // namespace detail

/// y[T,H] = residual[T,H] + scale * sum over slots of weights * down(silu(gate x) * (up x)); y may be the residual.
/// Weights of all experts are stacked: w_gate and w_up [E*f, H], w_down [E*H, f], of which the leading hidden units and
/// channels are used. gate and up [T*k, f] are saved by grouped row.
template <std::floating_point Scalar, ShapeOf<experts_shape> Shape>
void experts(Shape shape, double scale, matrix_view<const Scalar> residual, matrix_view<const Scalar> x,
             matrix_view<const Scalar> w_gate, matrix_view<const Scalar> w_up, matrix_view<const Scalar> w_down,
             grouping_view<> grouping, matrix_view<const Scalar> weights, matrix_view<Scalar> gate,
             matrix_view<Scalar> up, matrix_view<Scalar> y) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  const std::int64_t stored_width = weight_width(s);
  const std::int64_t stored_hidden = weight_hidden(s);
  detail::check_experts<Scalar, Scalar>("experts", s, x, w_gate, w_up, w_down, grouping, weights, gate, up);
  check_shape("experts", "residual", residual, x.rows, width);
  check_shape("experts", "y", y, x.rows, width);
  if (y.data != residual.data) std::copy_n(residual.data, residual.size(), y.data);
  for (std::int64_t e = 0; e < s.experts; ++e) {
    for (std::int64_t g = grouping.offsets[e]; g < grouping.offsets[e + 1]; ++g) {
      const std::int64_t token = grouping.assignment[g] / s.active;
      const std::int64_t slot = grouping.assignment[g] % s.active;
      for (std::int64_t j = 0; j < hidden; ++j) {
        gate(g, j) = 0;
        up(g, j) = 0;
        for (std::int64_t h = 0; h < width; ++h) {
          gate(g, j) += x(token, h) * w_gate(e * stored_hidden + j, h);
          up(g, j) += x(token, h) * w_up(e * stored_hidden + j, h);
        }
      }
      for (std::int64_t h = 0; h < width; ++h) {
        Scalar sum = 0;
        for (std::int64_t j = 0; j < hidden; ++j) {
          sum += gate(g, j) * detail::sigmoid(gate(g, j)) * up(g, j) * w_down(e * stored_width + h, j);
        }
        y(token, h) += static_cast<Scalar>(scale) * weights(token, slot) * sum;
      }
    }
  }
}

/// The backward pass of scale * sum over slots of weights * expert: dx[T,H] (added to, or overwritten), dw_gate +=,
/// dw_up +=, dw_down += and dweights[T,k] (overwritten) from dy[T,H].
template <std::floating_point Scalar, ShapeOf<experts_shape> Shape>
void experts_backward(Shape shape, double scale, matrix_view<const Scalar> x, matrix_view<const Scalar> w_gate,
                      matrix_view<const Scalar> w_up, matrix_view<const Scalar> w_down, grouping_view<> grouping,
                      matrix_view<const Scalar> weights, matrix_view<const Scalar> gate, matrix_view<const Scalar> up,
                      matrix_view<const Scalar> dy, matrix_view<Scalar> dx, bool add, matrix_view<Scalar> dw_gate,
                      matrix_view<Scalar> dw_up, matrix_view<Scalar> dw_down, matrix_view<Scalar> dweights) {
  const experts_shape s = shape;
  const std::int64_t width = s.width;
  const std::int64_t hidden = s.hidden;
  const std::int64_t stored_width = weight_width(s);
  const std::int64_t stored_hidden = weight_hidden(s);
  detail::check_experts<Scalar, const Scalar>("experts_backward", s, x, w_gate, w_up, w_down, grouping, weights, gate,
                                              up);
  detail::check_expert_gradients<Scalar>("experts_backward", s, x.rows, dy, dx, dw_gate, dw_up, dw_down, dweights);
  if (!add) set_zero(dx);
  for (std::int64_t e = 0; e < s.experts; ++e) {
    for (std::int64_t g = grouping.offsets[e]; g < grouping.offsets[e + 1]; ++g) {
      const std::int64_t token = grouping.assignment[g] / s.active;
      const std::int64_t slot = grouping.assignment[g] % s.active;
      dweights(token, slot) = 0;
      for (std::int64_t j = 0; j < hidden; ++j) {
        const Scalar sigma = detail::sigmoid(gate(g, j));
        const Scalar silu = gate(g, j) * sigma;
        const Scalar activation = silu * up(g, j);
        Scalar pulled = 0;  // dy through w_down, before the router's weight
        for (std::int64_t h = 0; h < width; ++h) pulled += dy(token, h) * w_down(e * stored_width + h, j);
        pulled *= static_cast<Scalar>(scale);
        dweights(token, slot) += pulled * activation;
        const Scalar dactivation = pulled * weights(token, slot);
        const Scalar dup = dactivation * silu;
        const Scalar dgate = dactivation * up(g, j) * sigma * (Scalar{1} + gate(g, j) * (Scalar{1} - sigma));
        for (std::int64_t h = 0; h < width; ++h) {
          dw_down(e * stored_width + h, j) +=
              static_cast<Scalar>(scale) * weights(token, slot) * dy(token, h) * activation;
          dw_gate(e * stored_hidden + j, h) += dgate * x(token, h);
          dw_up(e * stored_hidden + j, h) += dup * x(token, h);
          dx(token, h) += dgate * w_gate(e * stored_hidden + j, h) + dup * w_up(e * stored_hidden + j, h);
        }
      }
    }
  }
}

}  // namespace smelt::reference_ops
