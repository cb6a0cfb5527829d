// How does a visit run on rows of its own? Into it through an encoder and a projection, and out of it by adding what it
// did (LatentLoop section 3): h -> z -> the span's layers -> z' ; h + what z' - z is written back as. Forward and
// backward.
#pragma once

#include <cstdint>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/kernel_shapes.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>

namespace smelt {

/// One visit that runs on rows of its own, and its tokens: rows that are sequences of `length`.
struct latent_visit {
  int visit = 0;
  visit_plan plan{};
  std::span<const std::int32_t> first{};  ///< first row that a token may see; empty: all of its sequence
  std::int64_t length = 0;
};

namespace detail {

/// First visible rows of sequences that are one document each.
inline constexpr std::span<const std::int32_t> one_document{};

[[nodiscard]] constexpr linear_shape down_shape(const spec& s, const visit_plan& plan) noexcept {
  return {s.width, width_of(s, plan)};
}
[[nodiscard]] constexpr linear_shape up_shape(const spec& s, const visit_plan& plan) noexcept {
  return {width_of(s, plan), s.width};
}
[[nodiscard]] constexpr pool_shape pool_shape_of(const spec& s, const visit_plan& plan) noexcept {
  return {s.width, plan.compression, plan.encoder};
}
[[nodiscard]] constexpr write_back_shape write_back_shape_of(const spec& s, const visit_plan& plan) noexcept {
  return {s.width, plan.compression, plan.writeback};
}

}  // namespace detail

/// From a.stream to `input` [R, Hs], the input of the visit's first layer.
template <ArchitectureHandle A, Backend B>
void enter_visit(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const latent_visit& of,
                 visit_activations<typename B::scalar>& a, matrix_view<typename B::scalar> input) {
  using scalar = typename B::scalar;
  [[maybe_unused]] const spec& s = spec_of(arch);
  const visit_plan& plan = of.plan;
  matrix_view<const scalar> wide = a.stream.view();
  if constexpr (may_have<A>(has_compressed_visits)) {
    if (plan.compression > 1) {
      const matrix_view<scalar> pooled = is_narrow(plan) ? a.pooled.view() : input;
      backend.pool(detail::pool_shape_of(s, plan), a.stream.view(), w(weight::encoder, of.visit), of.first, of.length,
                   pooled);
      wide = pooled;
    }
  }
  if constexpr (may_have<A>(has_narrow_visits)) {
    if (is_narrow(plan)) backend.linear(detail::down_shape(s, plan), wide, w(weight::stream_down, of.visit), input);
  }
}

/// From `input` and a.output to a.increment [R, H], or for a visit of all tokens to a.narrow_increment [T, Hs].
template <ArchitectureHandle A, Backend B>
void find_increment(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const latent_visit& of,
                    visit_activations<typename B::scalar>& a, matrix_view<const typename B::scalar> input) {
  const visit_plan& plan = of.plan;
  const auto difference = is_narrow(plan) ? a.narrow_increment.view() : a.increment.view();
  backend.difference(a.output.view(), input, difference);
  if constexpr (may_have<A>(has_narrow_visits)) {
    if (is_narrow(plan) && plan.compression > 1)
      backend.linear(detail::up_shape(spec_of(arch), plan), a.narrow_increment.view(), w(weight::stream_up, of.visit),
                     a.increment.view());
  }
}

/// From a.stream and what the visit did to the stream behind the visit: [T, H].
template <ArchitectureHandle A, Backend B>
void leave_visit(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const latent_visit& of,
                 visit_activations<typename B::scalar>& a, matrix_view<const typename B::scalar> input,
                 matrix_view<typename B::scalar> stream) {
  [[maybe_unused]] const spec& s = spec_of(arch);
  const visit_plan& plan = of.plan;
  find_increment(arch, backend, w, of, a, input);
  if constexpr (may_have<A>(has_compressed_visits)) {
    if (plan.compression > 1)
      return backend.write_back(detail::write_back_shape_of(s, plan), a.stream.view(), a.increment.view(),
                                w(weight::writeback, of.visit), of.first, 0, of.length, stream);
  }
  if constexpr (may_have<A>(has_narrow_visits)) {
    backend.add_linear(detail::up_shape(s, plan), 1.0, a.stream.view(), a.narrow_increment.view(),
                       w(weight::stream_up, of.visit), stream);
  }
}

/// From `gradient` [T, H], that of the stream behind the visit, to a.gradient [R, Hs], that of a.output. The former is
/// also what reaches the stream before the visit past it.
template <ArchitectureHandle A, Backend B>
void leave_visit_backward(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const latent_visit& of,
                          visit_activations<typename B::scalar>& a, matrix_view<const typename B::scalar> gradient,
                          weight_buffer<typename B::scalar>& dw) {
  using scalar = typename B::scalar;
  [[maybe_unused]] const spec& s = spec_of(arch);
  const visit_plan& plan = of.plan;
  matrix_view<const scalar> wide = gradient;
  if constexpr (may_have<A>(has_compressed_visits)) {
    if (plan.compression > 1) {
      const matrix_view<scalar> dincrement = is_narrow(plan) ? a.wide_gradient.view() : a.output_gradient.view();
      backend.write_back_backward(detail::write_back_shape_of(s, plan), a.increment.view(),
                                  w(weight::writeback, of.visit), of.first, of.length, gradient, dincrement,
                                  dw(weight::writeback, of.visit));
      wide = dincrement;
    }
  }
  if constexpr (may_have<A>(has_narrow_visits)) {
    if (is_narrow(plan)) {
      backend.linear_backward_weight(detail::up_shape(s, plan), 1.0, a.narrow_increment.view(), wide,
                                     dw(weight::stream_up, of.visit));
      backend.linear_backward_input(detail::up_shape(s, plan), 1.0, wide, w(weight::stream_up, of.visit),
                                    a.output_gradient.view(), false);
    }
  }
  const auto from = a.output_gradient.span();
  std::copy(from.begin(), from.end(), a.gradient.span().begin());
}

/// From a.gradient [R, Hs], which has passed through the visit's layers to their input, to the stream's: adds to
/// `gradient` [T, H].
template <ArchitectureHandle A, Backend B>
void enter_visit_backward(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const latent_visit& of,
                          visit_activations<typename B::scalar>& a, matrix_view<typename B::scalar> gradient,
                          weight_buffer<typename B::scalar>& dw) {
  using scalar = typename B::scalar;
  [[maybe_unused]] const spec& s = spec_of(arch);
  const visit_plan& plan = of.plan;
  // The increment is the output less the input.
  backend.difference(a.gradient.view(), a.output_gradient.view(), a.gradient.view());
  matrix_view<const scalar> wide = a.gradient.view();
  if constexpr (may_have<A>(has_narrow_visits)) {
    if (is_narrow(plan)) {
      const bool pooled = plan.compression > 1;
      const matrix_view<const scalar> from = pooled ? a.pooled.view() : a.stream.view();
      backend.linear_backward_weight(detail::down_shape(s, plan), 1.0, from, a.gradient.view(),
                                     dw(weight::stream_down, of.visit));
      backend.linear_backward_input(detail::down_shape(s, plan), 1.0, a.gradient.view(),
                                    w(weight::stream_down, of.visit), pooled ? a.wide_gradient.view() : gradient,
                                    !pooled);
      wide = a.wide_gradient.view();
    }
  }
  if constexpr (may_have<A>(has_compressed_visits)) {
    if (plan.compression > 1)
      backend.pool_backward(detail::pool_shape_of(s, plan), a.stream.view(), w(weight::encoder, of.visit), of.first,
                            of.length, wide, gradient, dw(weight::encoder, of.visit));
  }
}

}  // namespace smelt
