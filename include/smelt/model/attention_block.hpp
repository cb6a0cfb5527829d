// How does a layer attend? x <- x + s * Attention(RMSNorm(x)), forward and backward.
#pragma once

#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/weights.hpp>

namespace smelt {

namespace detail {

/// The weights in front of layer `layer`'s attention, or their gradients.
template <class T, class Weights>
[[nodiscard]] attention_input_weights<T> input_weights(Weights& w, int layer) noexcept {
  return {w.vector(weight::attention_norm, layer),
          w(weight::query, layer),
          w(weight::key, layer),
          w(weight::value, layer),
          w.vector(weight::query_norm, layer),
          w.vector(weight::key_norm, layer)};
}

template <class Scalar>
[[nodiscard]] attention_input_saved<Scalar> input_saved(layer_activations<Scalar>& a) noexcept {
  return {a.attention_rms, a.raw_query.view(), a.raw_key.view(), a.query_rms, a.key_rms};
}

/// First visible rows of executed layer `e`.
template <class Scalar>
[[nodiscard]] std::span<const std::int32_t> visible(const spec& s, const executed_layer& e,
                                                    const batch_geometry<Scalar>& geometry) noexcept {
  return window_of(s, e.layer) > 0 ? geometry.first_windowed : geometry.first;
}

}  // namespace detail

/// Reads a.input, writes a.middle and what the backward pass needs.
template <ArchitectureHandle A, Backend B>
void attention_block(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const executed_layer& e,
                     const batch_geometry<typename B::scalar>& geometry, std::int64_t length,
                     layer_activations<typename B::scalar>& a) {
  const spec& s = spec_of(arch);
  using scalar = typename B::scalar;
  backend.attention_input(shape<shapes::attention_input>(arch), a.input.view(),
                          detail::input_weights<const scalar>(w, e.layer), geometry.position, detail::input_saved(a),
                          query_key_value<scalar>{a.query.view(), a.key.view(), a.value.view()});
  backend.attention(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                    detail::visible(s, e, geometry), length, a.attended.view(), a.logsumexp);
  backend.add_linear(shape<shapes::output>(arch), e.plan.residual.as<double>(), a.input.view(), a.attended.view(),
                     w(weight::output, e.layer), a.middle.view());
}

/// `gradient` [tokens, H] holds the gradient of a.middle and leaves as the gradient of a.input.
template <ArchitectureHandle A, Backend B>
void attention_block_backward(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w,
                              const executed_layer& e, const batch_geometry<typename B::scalar>& geometry,
                              std::int64_t length, layer_activations<typename B::scalar>& a,
                              scratch_activations<typename B::scalar>& scratch,
                              matrix_view<typename B::scalar> gradient, weight_buffer<typename B::scalar>& dw) {
  const spec& s = spec_of(arch);
  using scalar = typename B::scalar;
  const auto dquery = scratch.query.view();
  const auto dkey = scratch.key.view();
  const auto dvalue = scratch.value.view();
  const double scale = e.plan.residual.as<double>();
  backend.linear_backward_weight(shape<shapes::output>(arch), scale, a.attended.view(), gradient,
                                 dw(weight::output, e.layer));
  backend.linear_backward_input(shape<shapes::output>(arch), scale, gradient, w(weight::output, e.layer),
                                scratch.attended.view(), false);
  backend.attention_backward(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                             detail::visible(s, e, geometry), length, a.attended.view(), a.logsumexp,
                             scratch.attended.view(), dquery, dkey, dvalue);
  backend.attention_input_backward(shape<shapes::attention_input>(arch), a.input.view(),
                                   detail::input_weights<const scalar>(w, e.layer), geometry.position,
                                   detail::input_saved(a), query_key_value<const scalar>{dquery, dkey, dvalue},
                                   gradient, detail::input_weights<scalar>(dw, e.layer));
}

}  // namespace smelt
