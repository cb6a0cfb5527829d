// What is the right answer? A backend of plain loops: in double, the oracle of every other backend.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/reference/adamw.hpp>
#include <smelt/kernels/reference/attention.hpp>
#include <smelt/kernels/reference/attention_cached.hpp>
#include <smelt/kernels/reference/attention_input.hpp>
#include <smelt/kernels/reference/cross_entropy.hpp>
#include <smelt/kernels/reference/difference.hpp>
#include <smelt/kernels/reference/dot.hpp>
#include <smelt/kernels/reference/embed.hpp>
#include <smelt/kernels/reference/experts.hpp>
#include <smelt/kernels/reference/group_by_expert.hpp>
#include <smelt/kernels/reference/linear.hpp>
#include <smelt/kernels/reference/muon.hpp>
#include <smelt/kernels/reference/norm.hpp>
#include <smelt/kernels/reference/pool.hpp>
#include <smelt/kernels/reference/rms_norm.hpp>
#include <smelt/kernels/reference/route.hpp>
#include <smelt/kernels/reference/write_back.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>

namespace smelt {

/// Plain loops in one thread, accumulating in Scalar. Arguments and shapes are those of Backend.
template <std::floating_point Scalar>
struct reference {
  using scalar = Scalar;
  using matrix = matrix_view<Scalar>;
  using const_matrix = matrix_view<const Scalar>;
  using vector = std::span<Scalar>;
  using const_vector = std::span<const Scalar>;
  using indices = std::span<const std::int32_t>;
  using token_mask = std::span<const std::uint8_t>;

  /// Keeps no copies: nothing to hold.
  struct weights_hold {
    weights_hold() = default;
    weights_hold(weights_hold&&) noexcept {}
    weights_hold(const weights_hold&) = delete;
    weights_hold& operator=(const weights_hold&) = delete;
    ~weights_hold() {}  // NOLINT(modernize-use-equals-default): an object that is only held counts as used
  };
  [[nodiscard]] weights_hold hold_weights() const { return {}; }

  void embed(const_matrix table, indices ids, matrix out) const { reference_ops::embed<Scalar>(table, ids, out); }

  void embed_backward(const_matrix dout, indices ids, matrix dtable) const {
    reference_ops::embed_backward<Scalar>(dout, ids, dtable);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm(Shape shape, const_matrix x, const_vector gain, matrix y, vector inv_rms) const {
    reference_ops::rms_norm<Scalar>(shape, x, gain, y, inv_rms);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm_backward(Shape shape, const_matrix x, const_vector gain, const_vector inv_rms, const_matrix dy,
                         matrix dx, vector dgain) const {
    reference_ops::rms_norm_backward<Scalar>(shape, x, gain, inv_rms, dy, dx, dgain);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear(Shape shape, const_matrix x, const_matrix w, matrix y) const {
    reference_ops::linear<Scalar>(shape, x, w, y);
  }

  template <ShapeOf<linear_shape> Shape>
  void add_linear(Shape shape, double scale, const_matrix residual, const_matrix x, const_matrix w, matrix y) const {
    reference_ops::add_linear<Scalar>(shape, scale, residual, x, w, y);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_input(Shape shape, double scale, const_matrix dy, const_matrix w, matrix dx,
                             bool accumulate) const {
    reference_ops::linear_backward_input<Scalar>(shape, scale, dy, w, dx, accumulate);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_weight(Shape shape, double scale, const_matrix x, const_matrix dy, matrix dw) const {
    reference_ops::linear_backward_weight<Scalar>(shape, scale, x, dy, dw);
  }

  template <ShapeOf<attention_input_shape> Shape>
  void attention_input(Shape shape, const_matrix x, const attention_input_weights<const Scalar>& w, indices positions,
                       const attention_input_saved<Scalar>& saved, const query_key_value<Scalar>& out) const {
    reference_ops::attention_input<Scalar>(shape, x, w, positions, saved, out);
  }

  template <ShapeOf<attention_input_shape> Shape>
  void attention_input_backward(Shape shape, const_matrix x, const attention_input_weights<const Scalar>& w,
                                indices positions, const attention_input_saved<const Scalar>& saved,
                                const query_key_value<const Scalar>& dout, matrix dx,
                                const attention_input_weights<Scalar>& dw) const {
    reference_ops::attention_input_backward<Scalar>(shape, x, w, positions, saved, dout, dx, dw);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first, std::int64_t length,
                 matrix out, vector lse) const {
    reference_ops::attention<Scalar>(shape, q, k, v, first, length, out, lse);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention_backward(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first,
                          std::int64_t length, const_matrix out, const_vector lse, const_matrix dout, matrix dq,
                          matrix dk, matrix dv) const {
    reference_ops::attention_backward<Scalar>(shape, q, k, v, first, length, out, lse, dout, dq, dk, dv);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention_cached(Shape shape, const_matrix q, const_matrix k, const_matrix v, std::int64_t window,
                        matrix out) const {
    reference_ops::attention_cached<Scalar>(shape, q, k, v, window, out);
  }

  template <ShapeOf<router_shape> Shape>
  void route(Shape shape, const_matrix logits, const_vector selection_bias, matrix scores, std::span<std::int32_t> ids,
             matrix weights, vector logsumexp) const {
    reference_ops::route<Scalar>(shape, logits, selection_bias, scores, ids, weights, logsumexp);
  }

  template <ShapeOf<router_shape> Shape>
  [[nodiscard]] router_losses route_losses(Shape shape, const_matrix scores, indices ids, const_vector logsumexp,
                                           token_mask mask, vector load) const {
    return reference_ops::route_losses<Scalar>(shape, scores, ids, logsumexp, mask, load);
  }

  template <ShapeOf<router_shape> Shape>
  void route_backward(Shape shape, const_matrix scores, indices ids, const_matrix weights, const_vector logsumexp,
                      const_vector load, token_mask mask, const_matrix dweights, router_loss_scale scale,
                      matrix dlogits) const {
    reference_ops::route_backward<Scalar>(shape, scores, ids, weights, logsumexp, load, mask, dweights, scale, dlogits);
  }

  template <ShapeOf<router_shape> Shape>
  void group_by_expert(Shape shape, indices ids, grouping_view<std::int32_t> grouping) const {
    reference_ops::group_by_expert(shape, ids, grouping);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts(Shape shape, double scale, const_matrix residual, const_matrix x, const_matrix w_gate, const_matrix w_up,
               const_matrix w_down, grouping_view<> grouping, const_matrix weights, matrix gate, matrix up,
               matrix y) const {
    reference_ops::experts<Scalar>(shape, scale, residual, x, w_gate, w_up, w_down, grouping, weights, gate, up, y);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts_backward(Shape shape, double scale, const_matrix x, const_matrix w_gate, const_matrix w_up,
                        const_matrix w_down, grouping_view<> grouping, const_matrix weights, const_matrix gate,
                        const_matrix up, const_matrix dy, matrix dx, bool add, matrix dw_gate, matrix dw_up,
                        matrix dw_down, matrix dweights) const {
    reference_ops::experts_backward<Scalar>(shape, scale, x, w_gate, w_up, w_down, grouping, weights, gate, up, dy, dx,
                                            add, dw_gate, dw_up, dw_down, dweights);
  }

  template <ShapeOf<head_shape> Shape>
  [[nodiscard]] loss_sum cross_entropy(Shape shape, const_matrix x, const_matrix table, indices targets, vector losses,
                                       vector logsumexp) const {
    return reference_ops::cross_entropy<Scalar>(shape, x, table, targets, losses, logsumexp);
  }

  template <ShapeOf<head_shape> Shape>
  void cross_entropy_backward(Shape shape, const_matrix x, const_matrix table, indices targets, const_vector logsumexp,
                              double scale, matrix dx, matrix dtable) const {
    reference_ops::cross_entropy_backward<Scalar>(shape, x, table, targets, logsumexp, scale, dx, dtable);
  }

  template <ShapeOf<head_shape> Shape>
  [[nodiscard]] loss_sum cross_entropy_with_gradient(Shape shape, const_matrix x, const_matrix table, indices targets,
                                                     double scale, vector losses, matrix dx, matrix dtable) const {
    return reference_ops::cross_entropy_with_gradient<Scalar>(shape, x, table, targets, scale, losses, dx, dtable);
  }

  template <ShapeOf<pool_shape> Shape>
  void pool(Shape shape, const_matrix x, const_matrix w, indices first, std::int64_t length, matrix z) const {
    reference_ops::pool<Scalar>(shape, x, w, first, length, z);
  }

  template <ShapeOf<pool_shape> Shape>
  void pool_backward(Shape shape, const_matrix x, const_matrix w, indices first, std::int64_t length, const_matrix dz,
                     matrix dx, matrix dw) const {
    reference_ops::pool_backward<Scalar>(shape, x, w, first, length, dz, dx, dw);
  }

  template <ShapeOf<write_back_shape> Shape>
  void write_back(Shape shape, const_matrix h, const_matrix d, const_matrix w, indices first, std::int64_t begin,
                  std::int64_t length, matrix out) const {
    reference_ops::write_back<Scalar>(shape, h, d, w, first, begin, length, out);
  }

  template <ShapeOf<write_back_shape> Shape>
  void write_back_backward(Shape shape, const_matrix d, const_matrix w, indices first, std::int64_t length,
                           const_matrix dout, matrix dd, matrix dw) const {
    reference_ops::write_back_backward<Scalar>(shape, d, w, first, length, dout, dd, dw);
  }

  void difference(const_matrix a, const_matrix b, matrix out) const { reference_ops::difference<Scalar>(a, b, out); }

  [[nodiscard]] double dot(const_vector a, const_vector b) const { return reference_ops::dot<Scalar>(a, b); }

  [[nodiscard]] double norm(const_vector x) const noexcept { return reference_ops::norm<Scalar>(x); }

  void adamw(const adamw_step& numbers, std::span<const parameter_range> ranges, vector gradient, vector weight,
             vector first, vector second) const {
    reference_ops::adamw<Scalar>(numbers, ranges, gradient, weight, first, second);
  }

  /// Leaves nothing for later.
  void adamw_deferred(const adamw_step& numbers, std::span<const parameter_range> ranges, vector gradient,
                      vector weight, vector first, vector second) const {
    adamw(numbers, ranges, gradient, weight, first, second);
  }
  void settle(const_vector) const noexcept {}

  void muon(const muon_step& numbers, std::span<const matrix_range> matrices, vector gradient, vector weight,
            vector momentum) const {
    reference_ops::muon<Scalar>(numbers, matrices, gradient, weight, momentum);
  }
};

static_assert(Backend<reference<double>>);
static_assert(Backend<reference<float>>);

}  // namespace smelt
