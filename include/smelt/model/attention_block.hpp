// How does a layer attend? x <- x + s * Attention(RMSNorm(x)), forward and backward.
#pragma once

#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/weights.hpp>

namespace smelt {

namespace detail {

/// A matrix of heads seen as one row a head, or as it is, according to the width of its norm.
template <class T>
[[nodiscard]] matrix_view<T> rows_of(matrix_view<T> m, const norm_shape& norm) noexcept {
  return {m.data, m.size() / norm.width, norm.width};
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
  const bool normed = s.attention.norm != qk_norm::none;
  auto& query = normed ? a.raw_query : a.query;
  auto& key = normed ? a.raw_key : a.key;
  const auto input = a.attention_input.view();
  backend.rms_norm(shape<shapes::norm>(arch), a.input.view(), w.vector(weight::attention_norm, e.layer), input,
                   a.attention_rms);
  backend.linear(shape<shapes::query>(arch), input, w(weight::query, e.layer), query.view());
  backend.linear(shape<shapes::key_value>(arch), input, w(weight::key, e.layer), key.view());
  backend.linear(shape<shapes::key_value>(arch), input, w(weight::value, e.layer), a.value.view());
  if (normed) {
    const norm_shape query_norm = shapes::query_norm(s);
    const norm_shape key_norm = shapes::key_norm(s);
    backend.rms_norm(shape<shapes::query_norm>(arch), detail::rows_of(query.view(), query_norm),
                     w.vector(weight::query_norm, e.layer), detail::rows_of(a.query.view(), query_norm), a.query_rms);
    backend.rms_norm(shape<shapes::key_norm>(arch), detail::rows_of(key.view(), key_norm),
                     w.vector(weight::key_norm, e.layer), detail::rows_of(a.key.view(), key_norm), a.key_rms);
  }
  backend.rotary(shape<shapes::query_rotary>(arch), a.query.view(), geometry.position);
  backend.rotary(shape<shapes::key_rotary>(arch), a.key.view(), geometry.position);
  backend.attention(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                    detail::visible(s, e, geometry), length, a.attended.view(), a.logsumexp);
  backend.add_linear(shape<shapes::output>(arch), e.residual.as<double>(), a.input.view(), a.attended.view(),
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
  const auto input = a.attention_input.view();
  const auto dinput = scratch.normed_gradient.view();
  const auto dquery = scratch.query.view();
  const auto dkey = scratch.key.view();
  const auto dvalue = scratch.value.view();
  const double scale = e.residual.as<double>();
  backend.linear_backward_weight(shape<shapes::output>(arch), scale, a.attended.view(), gradient,
                                 dw(weight::output, e.layer));
  backend.linear_backward_input(shape<shapes::output>(arch), scale, gradient, w(weight::output, e.layer),
                                scratch.attended.view(), false);
  backend.attention_backward(shape<shapes::attention>(arch), a.query.view(), a.key.view(), a.value.view(),
                             detail::visible(s, e, geometry), length, a.attended.view(), a.logsumexp,
                             scratch.attended.view(), dquery, dkey, dvalue);
  backend.rotary_backward(shape<shapes::query_rotary>(arch), dquery, geometry.position);
  backend.rotary_backward(shape<shapes::key_rotary>(arch), dkey, geometry.position);
  if (s.attention.norm != qk_norm::none) {
    // The rotated query and key have served; their buffers take the gradients of the raw ones.
    const auto norm_backward = [&](auto norm, weight gain, matrix<typename B::scalar>& raw, auto& rms, auto dy,
                                   matrix<typename B::scalar>& draw) {
      set_zero(draw.view());
      backend.rms_norm_backward(norm, detail::rows_of(raw.view(), norm), w.vector(gain, e.layer), rms,
                                detail::rows_of(dy, norm), detail::rows_of(draw.view(), norm),
                                dw.vector(gain, e.layer));
      backend.copy_scaled(1.0, draw.view(), dy);
    };
    norm_backward(shape<shapes::query_norm>(arch), weight::query_norm, a.raw_query, a.query_rms, dquery, a.query);
    norm_backward(shape<shapes::key_norm>(arch), weight::key_norm, a.raw_key, a.key_rms, dkey, a.key);
  }
  backend.linear_backward_weight(shape<shapes::query>(arch), 1.0, input, dquery, dw(weight::query, e.layer));
  backend.linear_backward_weight(shape<shapes::key_value>(arch), 1.0, input, dkey, dw(weight::key, e.layer));
  backend.linear_backward_weight(shape<shapes::key_value>(arch), 1.0, input, dvalue, dw(weight::value, e.layer));
  backend.linear_backward_input(shape<shapes::query>(arch), 1.0, dquery, w(weight::query, e.layer), dinput, false);
  backend.linear_backward_input(shape<shapes::key_value>(arch), 1.0, dkey, w(weight::key, e.layer), dinput, true);
  backend.linear_backward_input(shape<shapes::key_value>(arch), 1.0, dvalue, w(weight::value, e.layer), dinput, true);
  backend.rms_norm_backward(shape<shapes::norm>(arch), a.input.view(), w.vector(weight::attention_norm, e.layer),
                            a.attention_rms, dinput, gradient, dw.vector(weight::attention_norm, e.layer));
}

}  // namespace smelt
