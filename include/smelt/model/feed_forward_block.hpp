// How does a layer think? x <- x + s * FFN(RMSNorm(x)), the FFN being routed experts, with or without a shared one, or
// dense; forward and backward.
#pragma once

#include <cstdint>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/weights.hpp>
#include <span>

namespace smelt {

namespace detail {

// The mask of route_losses and route_backward that leaves no token out.
inline constexpr std::span<const std::uint8_t> every_token{};

}  // namespace detail

/// Reads a.middle, writes `output` [tokens, H] and what the losses of the layer's router and the backward pass need.
template <ArchitectureHandle A, Backend B>
void feed_forward_block(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w, const executed_layer& e,
                        const batch_geometry<typename B::scalar>& geometry, layer_activations<typename B::scalar>& a,
                        scratch_activations<typename B::scalar>& scratch, matrix_view<typename B::scalar> output) {
  using scalar = typename B::scalar;
  const spec& s = spec_of(arch);
  const auto input = a.ffn_input.view();
  const auto scale = e.plan.residual.as<double>();
  const matrix_view<const scalar> ones = geometry.ones.view();
  backend.rms_norm(shape<shapes::norm>(arch), a.middle.view(), w.vector(weight::ffn_norm, e.layer), input, a.ffn_rms);
  if (!has_experts(s, e.layer)) {
    backend.experts(shape<shapes::dense>(arch), scale, a.middle.view(), input, w(weight::dense_gate, e.layer),
                    w(weight::dense_up, e.layer), w(weight::dense_down, e.layer), geometry.all_tokens(), ones,
                    a.gate.view(), a.up.view(), output);
  } else {
    routing<scalar>& r = a.routed;
    backend.linear(shape<shapes::router_logits>(arch), input, w(weight::router, e.layer), scratch.logits.view());
    backend.route(shape<shapes::router>(arch), scratch.logits.view(), w.vector(weight::balance_bias, e.layer),
                  r.scores.view(), r.ids, r.weights.view(), r.logsumexp);
    backend.group_by_expert(shape<shapes::router>(arch), r.ids, r.grouping());
    backend.experts(shape<shapes::experts>(arch), scale, a.middle.view(), input, w(weight::expert_gate, e.layer),
                    w(weight::expert_up, e.layer), w(weight::expert_down, e.layer), r.grouping(), r.weights.view(),
                    a.gate.view(), a.up.view(), output);
    if (s.experts.shared_hidden > 0) {
      backend.experts(shape<shapes::shared_expert>(arch), scale, output, input, w(weight::shared_gate, e.layer),
                      w(weight::shared_up, e.layer), w(weight::shared_down, e.layer), geometry.all_tokens(), ones,
                      a.shared_gate.view(), a.shared_up.view(), output);
    }
  }
}

/// The losses of the router of a layer that a forward pass has run (zeros for a dense layer), and the loads that the
/// backward pass needs.
template <ArchitectureHandle A, Backend B>
[[nodiscard]] router_losses losses_of_router(const A& arch, B& backend, const executed_layer& e,
                                             layer_activations<typename B::scalar>& a) {
  if (!has_experts(spec_of(arch), e.layer)) return {};
  auto& r = a.routed;
  return backend.route_losses(shape<shapes::router>(arch), r.scores.view(), r.ids, r.logsumexp, detail::every_token,
                              r.load);
}

/// `gradient` [tokens, H] holds the gradient of the layer's output and leaves as the gradient of a.middle.
template <ArchitectureHandle A, Backend B>
void feed_forward_block_backward(const A& arch, B& backend, const weight_buffer<typename B::scalar>& w,
                                 const executed_layer& e, const batch_geometry<typename B::scalar>& geometry,
                                 router_loss_scale loss_scale, layer_activations<typename B::scalar>& a,
                                 scratch_activations<typename B::scalar>& scratch,
                                 matrix_view<typename B::scalar> gradient, weight_buffer<typename B::scalar>& dw) {
  using scalar = typename B::scalar;
  const spec& s = spec_of(arch);
  const auto input = a.ffn_input.view();
  const auto scale = e.plan.residual.as<double>();
  const auto dinput = scratch.normed_gradient.view();
  const matrix_view<const scalar> ones = geometry.ones.view();
  // An expert that every token visits, with weight 1: its weight gradient is discarded.
  const auto unrouted_backward = [&](auto expert, weight gate, weight up, weight down, auto& saved_gate, auto& saved_up,
                                     bool add) {
    backend.experts_backward(expert, scale, input, w(gate, e.layer), w(up, e.layer), w(down, e.layer),
                             geometry.all_tokens(), ones, saved_gate.view(), saved_up.view(), gradient, dinput, add,
                             dw(gate, e.layer), dw(up, e.layer), dw(down, e.layer),
                             scratch.single_weight_gradient.view());
  };
  if (!has_experts(s, e.layer)) {
    unrouted_backward(shape<shapes::dense>(arch), weight::dense_gate, weight::dense_up, weight::dense_down, a.gate,
                      a.up, false);
  } else {
    routing<scalar>& r = a.routed;
    const auto dlogits = scratch.logits.view();
    backend.experts_backward(shape<shapes::experts>(arch), scale, input, w(weight::expert_gate, e.layer),
                             w(weight::expert_up, e.layer), w(weight::expert_down, e.layer), r.grouping(),
                             r.weights.view(), a.gate.view(), a.up.view(), gradient, dinput, false,
                             dw(weight::expert_gate, e.layer), dw(weight::expert_up, e.layer),
                             dw(weight::expert_down, e.layer), scratch.weight_gradient.view());
    if (s.experts.shared_hidden > 0)
      unrouted_backward(shape<shapes::shared_expert>(arch), weight::shared_gate, weight::shared_up, weight::shared_down,
                        a.shared_gate, a.shared_up, true);
    backend.route_backward(shape<shapes::router>(arch), r.scores.view(), r.ids, r.weights.view(), r.logsumexp, r.load,
                           detail::every_token, scratch.weight_gradient.view(), loss_scale, dlogits);
    backend.linear_backward_weight(shape<shapes::router_logits>(arch), 1.0, input, dlogits,
                                   dw(weight::router, e.layer));
    backend.linear_backward_input(shape<shapes::router_logits>(arch), 1.0, dlogits, w(weight::router, e.layer), dinput,
                                  true);
  }
  backend.rms_norm_backward(shape<shapes::norm>(arch), a.middle.view(), w.vector(weight::ffn_norm, e.layer), a.ffn_rms,
                            dinput, gradient, dw.vector(weight::ffn_norm, e.layer));
}

}  // namespace smelt
