// How does a step run on a CPU? A backend of vectorised kernels whose tasks an executor spreads over the cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <smelt/core/view.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/cpu/adamw.hpp>
#include <smelt/kernels/cpu/attention.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/cross_entropy.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/embed.hpp>
#include <smelt/kernels/cpu/experts.hpp>
#include <smelt/kernels/cpu/linear.hpp>
#include <smelt/kernels/cpu/norm.hpp>
#include <smelt/kernels/cpu/rms_norm.hpp>
#include <smelt/kernels/cpu/rotary.hpp>
#include <smelt/kernels/cpu/route.hpp>
#include <smelt/kernels/cpu/scaled.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/reference/group_by_expert.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <utility>

namespace smelt {

/// Kernels in float for the vector instructions that the translation unit is compiled for. Arguments and shapes are
/// those of Backend. Scratch memory grows to what the largest op needs and is kept; one op runs at a time on an object.
/// An executor has `threads()`, and `for_each(n, f)` that runs f(i) once for every i of [0, n), in any order.
template <class Executor>
class cpu {
 public:
  using scalar = float;
  using matrix = matrix_view<float>;
  using const_matrix = matrix_view<const float>;
  using vector = std::span<float>;
  using const_vector = std::span<const float>;
  using indices = std::span<const std::int32_t>;
  using token_mask = std::span<const std::uint8_t>;

  explicit cpu(Executor executor) : context_(std::move(executor)) {}

  /// Tasks that may run at once.
  [[nodiscard]] int threads() const noexcept { return context_.threads(); }

  /// Overwrites all scratch memory with bytes of this value, to prove that no result depends on what was left there.
  void fill_scratch(std::byte value) { context_.fill_scratch(value); }

  void embed(const_matrix table, indices ids, matrix out) { cpu_ops::embed(context_, table, ids, out); }

  void embed_backward(const_matrix dout, indices ids, matrix dtable) {
    cpu_ops::embed_backward(context_, dout, ids, dtable);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm(Shape shape, const_matrix x, const_vector gain, matrix y, vector inv_rms) {
    cpu_ops::rms_norm(context_, shape, x, gain, y, inv_rms);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm_backward(Shape shape, const_matrix x, const_vector gain, const_vector inv_rms, const_matrix dy,
                         matrix dx, vector dgain) {
    cpu_ops::rms_norm_backward(context_, shape, x, gain, inv_rms, dy, dx, dgain);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear(Shape shape, const_matrix x, const_matrix w, matrix y) {
    cpu_ops::linear(context_, shape, x, w, y);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_input(Shape shape, const_matrix dy, const_matrix w, matrix dx, bool accumulate) {
    cpu_ops::linear_backward_input(context_, shape, dy, w, dx, accumulate);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_weight(Shape shape, const_matrix x, const_matrix dy, matrix dw) {
    cpu_ops::linear_backward_weight(context_, shape, x, dy, dw);
  }

  template <ShapeOf<rotary_shape> Shape>
  void rotary(Shape shape, matrix x, indices positions) {
    cpu_ops::rotary(context_, shape, x, positions);
  }

  template <ShapeOf<rotary_shape> Shape>
  void rotary_backward(Shape shape, matrix dx, indices positions) {
    cpu_ops::rotary_backward(context_, shape, dx, positions);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first, std::int64_t length,
                 matrix out, vector lse) {
    cpu_ops::attention(context_, shape, q, k, v, first, length, out, lse);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention_backward(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first,
                          std::int64_t length, const_matrix out, const_vector lse, const_matrix dout, matrix dq,
                          matrix dk, matrix dv) {
    cpu_ops::attention_backward(context_, shape, q, k, v, first, length, out, lse, dout, dq, dk, dv);
  }

  template <ShapeOf<router_shape> Shape>
  void route(Shape shape, const_matrix logits, const_vector selection_bias, matrix scores, std::span<std::int32_t> ids,
             matrix weights, vector logsumexp) {
    cpu_ops::route(context_, shape, logits, selection_bias, scores, ids, weights, logsumexp);
  }

  template <ShapeOf<router_shape> Shape>
  [[nodiscard]] router_losses route_losses(Shape shape, const_matrix scores, indices ids, const_vector logsumexp,
                                           token_mask mask, vector load) {
    return cpu_ops::route_losses(context_, shape, scores, ids, logsumexp, mask, load);
  }

  template <ShapeOf<router_shape> Shape>
  void route_backward(Shape shape, const_matrix scores, indices ids, const_matrix weights, const_vector logsumexp,
                      const_vector load, token_mask mask, const_matrix dweights, router_loss_scale scale,
                      matrix dlogits) {
    cpu_ops::route_backward(context_, shape, scores, ids, weights, logsumexp, load, mask, dweights, scale, dlogits);
  }

  template <ShapeOf<router_shape> Shape>
  void group_by_expert(Shape shape, indices ids, grouping_view<std::int32_t> grouping) {
    reference_ops::group_by_expert(shape, ids, grouping);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts(Shape shape, const_matrix x, const_matrix w_gate, const_matrix w_up, const_matrix w_down,
               grouping_view<> grouping, const_matrix weights, matrix gate, matrix up, matrix y) {
    cpu_ops::experts(context_, shape, x, w_gate, w_up, w_down, grouping, weights, gate, up, y);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts_backward(Shape shape, const_matrix x, const_matrix w_gate, const_matrix w_up, const_matrix w_down,
                        grouping_view<> grouping, const_matrix weights, const_matrix gate, const_matrix up,
                        const_matrix dy, matrix dx, matrix dw_gate, matrix dw_up, matrix dw_down, matrix dweights) {
    cpu_ops::experts_backward(context_, shape, x, w_gate, w_up, w_down, grouping, weights, gate, up, dy, dx, dw_gate,
                              dw_up, dw_down, dweights);
  }

  void add_scaled(double scale, const_matrix source, matrix target) {
    cpu_ops::add_scaled(context_, scale, source, target);
  }

  void copy_scaled(double scale, const_matrix source, matrix target) {
    cpu_ops::copy_scaled(context_, scale, source, target);
  }

  template <ShapeOf<head_shape> Shape>
  [[nodiscard]] loss_sum cross_entropy(Shape shape, const_matrix x, const_matrix table, indices targets, vector losses,
                                       vector logsumexp) {
    return cpu_ops::cross_entropy(context_, shape, x, table, targets, losses, logsumexp);
  }

  template <ShapeOf<head_shape> Shape>
  void cross_entropy_backward(Shape shape, const_matrix x, const_matrix table, indices targets, const_vector logsumexp,
                              double scale, matrix dx, matrix dtable) {
    cpu_ops::cross_entropy_backward(context_, shape, x, table, targets, logsumexp, scale, dx, dtable);
  }

  [[nodiscard]] double norm(const_vector x) { return cpu_ops::norm(context_, x); }

  void adamw(const adamw_step& numbers, const_vector gradient, vector weight, vector first, vector second) {
    cpu_ops::adamw(context_, numbers, gradient, weight, first, second);
  }

 private:
  cpu_ops::context<Executor> context_;
};

static_assert(Backend<cpu<cpu_default_executor>>);

}  // namespace smelt
