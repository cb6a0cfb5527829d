// How does a layer think? x <- x + s * FFN(RMSNorm(x)), the FFN being routed experts, with or without a shared one, or
// dense; forward and backward.
#pragma once

#include <cstdint>
#include <smelt/kernels/backend.hpp>
#include <smelt/model/activations.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/layer_weights.hpp>
#include <span>

namespace smelt {

namespace detail {

// The mask of route_losses and route_backward that leaves no token out.
inline constexpr std::span<const std::uint8_t> every_token{};

}  // namespace detail

/// Reads a.middle, writes `output` [tokens, H] and what the losses of the layer's router and the backward pass need.
template <ArchitectureHandle A, Backend B>
void feed_forward_block(const A& arch, B& backend, const layer_run<typename B::scalar>& run,
                        const batch_geometry<typename B::scalar>& geometry, layer_activations<typename B::scalar>& a,
                        scratch_activations<typename B::scalar>& scratch, matrix_view<typename B::scalar> output) {
  using scalar = typename B::scalar;
  const spec& s = spec_of(arch);
  const auto input = a.ffn_input.view();
  const layer_weights<const scalar>& w = run.weights;
  const matrix_view<const scalar> ones = geometry.ones.view();
  backend.rms_norm(shape<shapes::norm>(arch), a.middle.view(), w.ffn_norm, input, a.ffn_rms);
  if (!has_experts(s, run.step.layer)) {
    if constexpr (may_have<A>(has_dense_layers)) {
      backend.experts(shape<shapes::dense>(arch), run.coefficient, a.middle.view(), input, w.dense_gate, w.dense_up,
                      w.dense_down, geometry.all_rows(), ones, a.gate.view(), a.up.view(), output);
    }
  } else if constexpr (may_have<A>(has_routed_layers)) {
    routing<scalar>& r = a.routed;
    backend.linear(shape<shapes::router_logits>(arch), input, w.router, scratch.logits.view());
    backend.route(shape<shapes::router>(arch), scratch.logits.view(), w.balance_bias, r.scores.view(), r.ids,
                  r.weights.view(), r.logsumexp);
    backend.group_by_expert(shape<shapes::router>(arch), r.ids, r.grouping());
    backend.experts(shape<shapes::experts>(arch), run.coefficient, a.middle.view(), input, w.expert_gate, w.expert_up,
                    w.expert_down, r.grouping(), r.weights.view(), a.gate.view(), a.up.view(), output);
    if constexpr (may_have<A>(has_shared_expert)) {
      if (has_shared_expert(s)) {
        backend.experts(shape<shapes::shared_expert>(arch), run.coefficient, output, input, w.shared_gate, w.shared_up,
                        w.shared_down, geometry.all_rows(), ones, a.shared_gate.view(), a.shared_up.view(), output);
      }
    }
  }
}

/// The losses of the router of a layer that a forward pass has run (zeros for a dense layer), and the loads that the
/// backward pass needs.
template <ArchitectureHandle A, Backend B>
[[nodiscard]] router_losses losses_of_router(const A& arch, B& backend, const executed_layer& e,
                                             layer_activations<typename B::scalar>& a) {
  if constexpr (may_have<A>(has_routed_layers)) {
    if (auto& r = a.routed; has_experts(spec_of(arch), e.layer))
      return backend.route_losses(shape<shapes::router>(arch), r.scores.view(), r.ids, r.logsumexp, detail::every_token,
                                  r.load);
  }
  return {};
}

/// `gradient` [rows, H] holds the gradient of the layer's output and leaves as the gradient of a.middle.
template <ArchitectureHandle A, Backend B>
void feed_forward_block_backward(const A& arch, B& backend, const layer_run<typename B::scalar>& run,
                                 const batch_geometry<typename B::scalar>& geometry, router_loss_scale loss_scale,
                                 layer_activations<typename B::scalar>& a,
                                 scratch_activations<typename B::scalar>& scratch,
                                 matrix_view<typename B::scalar> gradient,
                                 const layer_gradients<typename B::scalar>& to) {
  using scalar = typename B::scalar;
  const spec& s = spec_of(arch);
  const auto input = a.ffn_input.view();
  const layer_weights<const scalar>& w = run.weights;
  const layer_weights<scalar>& dw = to.weights;
  const auto dinput = scratch.normed_gradient.view();
  const matrix_view<const scalar> ones = geometry.ones.view();
  // A slot's weight gradient is the coefficient times the slot's share of the coefficient's gradient over its weight.
  const auto add_coefficient_gradient = [&](const auto& weight_gradient, const auto& weights) {
    if (to.coefficient != nullptr)
      *to.coefficient += backend.dot(weight_gradient.span(), weights.span()) / run.coefficient;
  };
  // An expert that every row visits, with weight 1.
  struct unrouted {
    matrix_view<const scalar> gate, up, down;
    matrix_view<scalar> dgate, dup, ddown;
  };
  const auto unrouted_backward = [&](auto expert, const unrouted& of, auto& saved_gate, auto& saved_up, bool add) {
    backend.experts_backward(expert, run.coefficient, input, of.gate, of.up, of.down, geometry.all_rows(), ones,
                             saved_gate.view(), saved_up.view(), gradient, dinput, add, of.dgate, of.dup, of.ddown,
                             scratch.single_weight_gradient.view());
    add_coefficient_gradient(scratch.single_weight_gradient, geometry.ones);
  };
  if (!has_experts(s, run.step.layer)) {
    if constexpr (may_have<A>(has_dense_layers)) {
      unrouted_backward(shape<shapes::dense>(arch),
                        {w.dense_gate, w.dense_up, w.dense_down, dw.dense_gate, dw.dense_up, dw.dense_down}, a.gate,
                        a.up, false);
    }
  } else if constexpr (may_have<A>(has_routed_layers)) {
    routing<scalar>& r = a.routed;
    const auto dlogits = scratch.logits.view();
    backend.experts_backward(shape<shapes::experts>(arch), run.coefficient, input, w.expert_gate, w.expert_up,
                             w.expert_down, r.grouping(), r.weights.view(), a.gate.view(), a.up.view(), gradient,
                             dinput, false, dw.expert_gate, dw.expert_up, dw.expert_down,
                             scratch.weight_gradient.view());
    add_coefficient_gradient(scratch.weight_gradient, r.weights);
    if constexpr (may_have<A>(has_shared_expert)) {
      if (has_shared_expert(s))
        unrouted_backward(shape<shapes::shared_expert>(arch),
                          {w.shared_gate, w.shared_up, w.shared_down, dw.shared_gate, dw.shared_up, dw.shared_down},
                          a.shared_gate, a.shared_up, true);
    }
    backend.route_backward(shape<shapes::router>(arch), r.scores.view(), r.ids, r.weights.view(), r.logsumexp, r.load,
                           detail::every_token, scratch.weight_gradient.view(), loss_scale, dlogits);
    backend.linear_backward_weight(shape<shapes::router_logits>(arch), 1.0, input, dlogits, dw.router);
    backend.linear_backward_input(shape<shapes::router_logits>(arch), 1.0, dlogits, w.router, dinput, true);
  }
  backend.rms_norm_backward(shape<shapes::norm>(arch), a.middle.view(), w.ffn_norm, a.ffn_rms, dinput, gradient,
                            dw.ffn_norm);
}

}  // namespace smelt
