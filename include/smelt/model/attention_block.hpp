// How does a layer attend? x <- x + s * Attention(RMSNorm(x)), forward and backward.
#pragma once

#include <smelt/kernels/attention_input.hpp>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/layer_weights.hpp>

namespace smelt {

namespace detail {

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

/// Reads a.input, writes a.middle and what the backward pass needs. Rows are sequences of `length`.
template <ArchitectureHandle A, Backend B>
void attention_block(const A& arch, B& backend, const layer_run<typename B::scalar>& run,
                     const batch_geometry<typename B::scalar>& geometry, std::int64_t length,
                     layer_activations<typename B::scalar>& a) {
  const spec& s = spec_of(arch);
  using scalar = typename B::scalar;
  backend.attention_input(shape<shapes::attention_input>(arch), a.input.view(), run.weights.attention_input,
                          geometry.position, detail::input_saved(a),
                          query_key_value<scalar>{a.query.view(), a.key.view(), a.value.view()});
  backend.attention(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                    detail::visible(s, run.step, geometry), length, a.attended.view(), a.logsumexp);
  backend.add_linear(shape<shapes::output>(arch), run.coefficient, a.input.view(), a.attended.view(),
                     run.weights.output, a.middle.view());
}

/// `gradient` [rows, H] holds the gradient of a.middle and leaves as the gradient of a.input.
template <ArchitectureHandle A, Backend B>
void attention_block_backward(const A& arch, B& backend, const layer_run<typename B::scalar>& run,
                              const batch_geometry<typename B::scalar>& geometry, std::int64_t length,
                              layer_activations<typename B::scalar>& a,
                              scratch_activations<typename B::scalar>& scratch,
                              matrix_view<typename B::scalar> gradient, const layer_gradients<typename B::scalar>& to) {
  const spec& s = spec_of(arch);
  using scalar = typename B::scalar;
  const auto dquery = scratch.query.view();
  const auto dkey = scratch.key.view();
  const auto dvalue = scratch.value.view();
  backend.linear_backward_weight(shape<shapes::output>(arch), run.coefficient, a.attended.view(), gradient,
                                 to.weights.output);
  backend.linear_backward_input(shape<shapes::output>(arch), run.coefficient, gradient, run.weights.output,
                                scratch.attended.view(), false);
  // The write is the coefficient times a product with what was attended, and so is the gradient of the latter.
  if (to.coefficient != nullptr)
    *to.coefficient += backend.dot(scratch.attended.span(), a.attended.span()) / run.coefficient;
  backend.attention_backward(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                             detail::visible(s, run.step, geometry), length, a.attended.view(), a.logsumexp,
                             scratch.attended.view(), dquery, dkey, dvalue);
  backend.attention_input_backward(shape<shapes::attention_input>(arch), a.input.view(), run.weights.attention_input,
                                   geometry.position, detail::input_saved(a),
                                   query_key_value<const scalar>{dquery, dkey, dvalue}, gradient,
                                   to.weights.attention_input);
}

}  // namespace smelt
