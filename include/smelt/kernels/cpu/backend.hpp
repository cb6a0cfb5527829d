// How does a step run on a CPU? A backend of vectorised kernels whose tasks an executor spreads over the cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/kernels/cpu/context.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <smelt/kernels/cpu/operators.hpp>
#include <smelt/kernels/cpu/weight_panels.hpp>
#include <smelt/kernels/grouping.hpp>
#include <smelt/kernels/op_arrays.hpp>
#include <smelt/kernels/reference/group_by_expert.hpp>
#include <smelt/kernels/shapes.hpp>
#include <span>
#include <utility>

// The op of the chosen instruction set. Ops without products are the same with and without bf16 ones.
#if SMELT_HAS_BASELINE
#define SMELT_CASE_BASELINE(op, ...) \
  case instruction_set::baseline:    \
    return cpu_ops::baseline::op(__VA_ARGS__);
#else
#define SMELT_CASE_BASELINE(op, ...)
#endif
#if SMELT_HAS_AVX2
#define SMELT_CASE_AVX2(op, ...) \
  case instruction_set::avx2:    \
    return cpu_ops::avx2::op(__VA_ARGS__);
#else
#define SMELT_CASE_AVX2(op, ...)
#endif
#if SMELT_HAS_AVX512
#define SMELT_CASE_AVX512(op, ...) \
  case instruction_set::avx512:    \
    return cpu_ops::avx512::op(__VA_ARGS__);
#else
#define SMELT_CASE_AVX512(op, ...)
#endif
#if SMELT_HAS_AVX512_BF16
#define SMELT_CASE_BF16(op, ...)     \
  case instruction_set::avx512_bf16: \
    return cpu_ops::op(__VA_ARGS__);
#else
#define SMELT_CASE_BF16(op, ...)
#endif
#define SMELT_SWITCH(...) \
  switch (set_) { __VA_ARGS__ default : cpu_ops::detail::no_set(); }
#define SMELT_RUN(op, ...)                                                           \
  cpu_ops::detail::settle(__VA_ARGS__);                                              \
  SMELT_SWITCH(SMELT_CASE_BASELINE(op, __VA_ARGS__) SMELT_CASE_AVX2(op, __VA_ARGS__) \
                   SMELT_CASE_AVX512(op, __VA_ARGS__) SMELT_CASE_BF16(avx512::op, __VA_ARGS__))
#define SMELT_RUN_PRODUCT(op, ...)                                                                 \
  cpu_ops::detail::settle(__VA_ARGS__);                                                            \
  SMELT_SWITCH(SMELT_CASE_BASELINE(op<float>, __VA_ARGS__) SMELT_CASE_AVX2(op<float>, __VA_ARGS__) \
                   SMELT_CASE_AVX512(op<float>, __VA_ARGS__) SMELT_CASE_BF16(avx512_bf16::op<bf16>, __VA_ARGS__))

namespace smelt {

namespace cpu_ops::detail {

// A backend is built with a set that the build has.
[[noreturn]] inline void no_set() {
  std::terminate();
}

// Every op finds its arrays updated: what is left of an update and touches one of them is done first.
inline void settle() {}
template <class... Arguments>
void settle(context& c, const Arguments&... arguments) {
  if (!c.has_update()) return;
  smelt::detail::for_each_array([&](const void* address, std::size_t bytes) { c.settle(address, bytes); },
                                arguments...);
}

}  // namespace cpu_ops::detail

/// Kernels whose arrays are float, for one instruction set and one type of products. Arguments and shapes are those of
/// Backend. Scratch memory grows to what the largest op needs and is kept; one op runs at a time on an object.
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

  /// Runs the ops of the widest instruction set that the machine has.
  explicit cpu(Executor executor, compute_type compute = compute_type::fp32)
      : cpu(std::move(executor), compute, best_instruction_set()) {}

  /// Runs the ops of this set. Throws errc::unsupported for a set that the build or the machine lacks, and for bf16
  /// without its instructions.
  cpu(Executor executor, compute_type compute, instruction_set set)
      : context_(cpu_ops::any_executor(std::move(executor))), compute_(compute), set_(set) {
    static_cast<void>(usable_instruction_set(name_of(set)));
    if (compute == compute_type::bf16 && set != instruction_set::avx512_bf16) {
      throw error(errc::unsupported, "bf16 products need the instruction set avx512_bf16, found " +
                                         std::string(name_of(set)) + "; fp32 runs everywhere");
    }
    // Its float ops are those of AVX-512.
    if (compute == compute_type::fp32 && set == instruction_set::avx512_bf16) set_ = instruction_set::avx512;
  }

  /// What the matrix products multiply in.
  [[nodiscard]] compute_type compute() const noexcept { return compute_; }

  /// The instruction set whose ops run.
  [[nodiscard]] instruction_set instructions() const noexcept { return set_; }

  /// FLOP/s of multiply-adds in the registers of the calling thread's core, measured over about 0.1 ms.
  [[nodiscard]] double core_peak() const { SMELT_RUN_PRODUCT(core_peak) }

  /// Promises that no weight of linear, experts or cross_entropy changes while the result (or another one) lives: their
  /// packed copies are then made at their first use and kept.
  [[nodiscard]] cpu_ops::weights_hold hold_weights() { return context_.panels().hold(); }

  /// Tasks that may run at once.
  [[nodiscard]] int threads() const noexcept { return context_.threads(); }

  /// Overwrites all scratch memory with bytes of this value, to prove that no result depends on what was left there.
  void fill_scratch(std::byte value) { context_.fill_scratch(value); }

  void embed(const_matrix table, indices ids, matrix out) { SMELT_RUN(embed, context_, table, ids, out); }

  void embed_backward(const_matrix dout, indices ids, matrix dtable) {
    SMELT_RUN(embed_backward, context_, dout, ids, dtable);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm(Shape shape, const_matrix x, const_vector gain, matrix y, vector inv_rms) {
    SMELT_RUN(rms_norm, context_, shape, x, gain, y, inv_rms);
  }

  template <ShapeOf<norm_shape> Shape>
  void rms_norm_backward(Shape shape, const_matrix x, const_vector gain, const_vector inv_rms, const_matrix dy,
                         matrix dx, vector dgain) {
    SMELT_RUN(rms_norm_backward, context_, shape, x, gain, inv_rms, dy, dx, dgain);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear(Shape shape, const_matrix x, const_matrix w, matrix y) {
    SMELT_RUN_PRODUCT(linear, context_, shape, x, w, y);
  }

  template <ShapeOf<linear_shape> Shape>
  void add_linear(Shape shape, double scale, const_matrix residual, const_matrix x, const_matrix w, matrix y) {
    SMELT_RUN_PRODUCT(add_linear, context_, shape, scale, residual, x, w, y);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_input(Shape shape, double scale, const_matrix dy, const_matrix w, matrix dx, bool accumulate) {
    SMELT_RUN_PRODUCT(linear_backward_input, context_, shape, scale, dy, w, dx, accumulate);
  }

  template <ShapeOf<linear_shape> Shape>
  void linear_backward_weight(Shape shape, double scale, const_matrix x, const_matrix dy, matrix dw) {
    SMELT_RUN_PRODUCT(linear_backward_weight, context_, shape, scale, x, dy, dw);
  }

  template <ShapeOf<attention_input_shape> Shape>
  void attention_input(Shape shape, const_matrix x, const attention_input_weights<const float>& w, indices positions,
                       const attention_input_saved<float>& saved, const query_key_value<float>& out) {
    SMELT_RUN_PRODUCT(attention_input, context_, shape, x, w, positions, saved, out);
  }

  template <ShapeOf<attention_input_shape> Shape>
  void attention_input_backward(Shape shape, const_matrix x, const attention_input_weights<const float>& w,
                                indices positions, const attention_input_saved<const float>& saved,
                                const query_key_value<const float>& dout, matrix dx,
                                const attention_input_weights<float>& dw) {
    SMELT_RUN_PRODUCT(attention_input_backward, context_, shape, x, w, positions, saved, dout, dx, dw);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first, std::int64_t length,
                 matrix out, vector lse) {
    SMELT_RUN_PRODUCT(attention, context_, shape, q, k, v, first, length, out, lse);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention_backward(Shape shape, const_matrix q, const_matrix k, const_matrix v, indices first,
                          std::int64_t length, const_matrix out, const_vector lse, const_matrix dout, matrix dq,
                          matrix dk, matrix dv) {
    SMELT_RUN_PRODUCT(attention_backward, context_, shape, q, k, v, first, length, out, lse, dout, dq, dk, dv);
  }

  template <ShapeOf<attention_shape> Shape>
  void attention_cached(Shape shape, const_matrix q, const_matrix k, const_matrix v, std::int64_t window, matrix out) {
    SMELT_RUN_PRODUCT(attention_cached, context_, shape, q, k, v, window, out);
  }

  template <ShapeOf<router_shape> Shape>
  void route(Shape shape, const_matrix logits, const_vector selection_bias, matrix scores, std::span<std::int32_t> ids,
             matrix weights, vector logsumexp) {
    SMELT_RUN(route, context_, shape, logits, selection_bias, scores, ids, weights, logsumexp);
  }

  template <ShapeOf<router_shape> Shape>
  [[nodiscard]] router_losses route_losses(Shape shape, const_matrix scores, indices ids, const_vector logsumexp,
                                           token_mask mask, vector load) {
    SMELT_RUN(route_losses, context_, shape, scores, ids, logsumexp, mask, load);
  }

  template <ShapeOf<router_shape> Shape>
  void route_backward(Shape shape, const_matrix scores, indices ids, const_matrix weights, const_vector logsumexp,
                      const_vector load, token_mask mask, const_matrix dweights, router_loss_scale scale,
                      matrix dlogits) {
    SMELT_RUN(route_backward, context_, shape, scores, ids, weights, logsumexp, load, mask, dweights, scale, dlogits);
  }

  template <ShapeOf<router_shape> Shape>
  void group_by_expert(Shape shape, indices ids, grouping_view<std::int32_t> grouping) {
    reference_ops::group_by_expert(shape, ids, grouping);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts(Shape shape, double scale, const_matrix residual, const_matrix x, const_matrix w_gate, const_matrix w_up,
               const_matrix w_down, grouping_view<> grouping, const_matrix weights, matrix gate, matrix up, matrix y) {
    SMELT_RUN_PRODUCT(experts, context_, shape, scale, residual, x, w_gate, w_up, w_down, grouping, weights, gate, up,
                      y);
  }

  template <ShapeOf<experts_shape> Shape>
  void experts_backward(Shape shape, double scale, const_matrix x, const_matrix w_gate, const_matrix w_up,
                        const_matrix w_down, grouping_view<> grouping, const_matrix weights, const_matrix gate,
                        const_matrix up, const_matrix dy, matrix dx, bool add, matrix dw_gate, matrix dw_up,
                        matrix dw_down, matrix dweights) {
    SMELT_RUN_PRODUCT(experts_backward, context_, shape, scale, x, w_gate, w_up, w_down, grouping, weights, gate, up,
                      dy, dx, add, dw_gate, dw_up, dw_down, dweights);
  }

  template <ShapeOf<head_shape> Shape>
  [[nodiscard]] loss_sum cross_entropy(Shape shape, const_matrix x, const_matrix table, indices targets, vector losses,
                                       vector logsumexp) {
    SMELT_RUN_PRODUCT(cross_entropy, context_, shape, x, table, targets, losses, logsumexp);
  }

  template <ShapeOf<head_shape> Shape>
  void cross_entropy_backward(Shape shape, const_matrix x, const_matrix table, indices targets, const_vector logsumexp,
                              double scale, matrix dx, matrix dtable) {
    SMELT_RUN_PRODUCT(cross_entropy_backward, context_, shape, x, table, targets, logsumexp, scale, dx, dtable);
  }

  template <ShapeOf<head_shape> Shape>
  [[nodiscard]] loss_sum cross_entropy_with_gradient(Shape shape, const_matrix x, const_matrix table, indices targets,
                                                     double scale, vector losses, matrix dx, matrix dtable) {
    SMELT_RUN_PRODUCT(cross_entropy_with_gradient, context_, shape, x, table, targets, scale, losses, dx, dtable);
  }

  template <ShapeOf<pool_shape> Shape>
  void pool(Shape shape, const_matrix x, const_matrix w, indices first, std::int64_t length, matrix z) {
    SMELT_RUN(pool, context_, shape, x, w, first, length, z);
  }

  template <ShapeOf<pool_shape> Shape>
  void pool_backward(Shape shape, const_matrix x, const_matrix w, indices first, std::int64_t length, const_matrix dz,
                     matrix dx, matrix dw) {
    SMELT_RUN(pool_backward, context_, shape, x, w, first, length, dz, dx, dw);
  }

  template <ShapeOf<write_back_shape> Shape>
  void write_back(Shape shape, const_matrix h, const_matrix d, const_matrix w, indices first, std::int64_t begin,
                  std::int64_t length, matrix out) {
    SMELT_RUN(write_back, context_, shape, h, d, w, first, begin, length, out);
  }

  template <ShapeOf<write_back_shape> Shape>
  void write_back_backward(Shape shape, const_matrix d, const_matrix w, indices first, std::int64_t length,
                           const_matrix dout, matrix dd, matrix dw) {
    SMELT_RUN(write_back_backward, context_, shape, d, w, first, length, dout, dd, dw);
  }

  void difference(const_matrix a, const_matrix b, matrix out) { SMELT_RUN(difference, context_, a, b, out); }

  [[nodiscard]] double dot(const_vector a, const_vector b) { SMELT_RUN(dot, context_, a, b); }

  [[nodiscard]] double norm(const_vector x) { SMELT_RUN(norm, context_, x); }

  void adamw(const adamw_step& numbers, std::span<const parameter_range> ranges, vector gradient, vector weight,
             vector first, vector second) {
    SMELT_RUN(adamw, context_, numbers, ranges, gradient, weight, first, second);
  }

  /// Left for later is all, with more than one thread: a part that no op has asked for runs beside the next ops.
  void adamw_deferred(const adamw_step& numbers, std::span<const parameter_range> ranges, vector gradient,
                      vector weight, vector first, vector second) {
    SMELT_RUN(adamw_deferred, context_, numbers, ranges, gradient, weight, first, second);
  }
  void settle(const_vector array) { cpu_ops::detail::settle(context_, array); }

  void muon(const muon_step& numbers, std::span<const matrix_range> matrices, vector gradient, vector weight,
            vector momentum) {
    SMELT_RUN_PRODUCT(muon, context_, numbers, matrices, gradient, weight, momentum);
  }

 private:
  cpu_ops::context context_;
  compute_type compute_;
  instruction_set set_;
};

#undef SMELT_CASE_BASELINE
#undef SMELT_CASE_AVX2
#undef SMELT_CASE_AVX512
#undef SMELT_CASE_BF16
#undef SMELT_SWITCH
#undef SMELT_RUN
#undef SMELT_RUN_PRODUCT

static_assert(Backend<cpu<cpu_default_executor>>);

}  // namespace smelt
