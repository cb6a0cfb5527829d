// Which weights does an executed layer use? Those of its physical layer; the attention and the sizes are its visit's.
#pragma once

#include <cstddef>
#include <smelt/core/view.hpp>
#include <smelt/kernels/attention_input.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/weights.hpp>
#include <smelt/spec/schedule.hpp>
#include <span>

namespace smelt {

/// The weights of one executed layer, or their gradients; empty where it has none.
template <class T>
struct layer_weights {
  attention_input_weights<T> attention_input{};
  matrix_view<T> output{};
  std::span<T> ffn_norm{};
  matrix_view<T> router{};
  std::span<T> balance_bias{};
  matrix_view<T> expert_gate{}, expert_up{}, expert_down{};
  matrix_view<T> shared_gate{}, shared_up{}, shared_down{};
  matrix_view<T> dense_gate{}, dense_up{}, dense_down{};
};

/// The weights of executed layer `e`, which runs at this width: matrices as they are stored, the leading gains of the
/// norms. `T` is the element of `w`, const for constant ones.
template <class T, class Weights>
[[nodiscard]] layer_weights<T> weights_of(Weights& w, const executed_layer& e, int width) noexcept {
  const auto gains = [&](weight norm) { return w.vector(norm, e.layer).first(static_cast<std::size_t>(width)); };
  return {.attention_input = {gains(weight::attention_norm), w(weight::query, e.attention), w(weight::key, e.attention),
                              w(weight::value, e.attention), w.vector(weight::query_norm, e.attention),
                              w.vector(weight::key_norm, e.attention)},
          .output = w(weight::output, e.attention),
          .ffn_norm = gains(weight::ffn_norm),
          .router = w(weight::router, e.layer),
          .balance_bias = w.vector(weight::balance_bias, e.layer),
          .expert_gate = w(weight::expert_gate, e.layer),
          .expert_up = w(weight::expert_up, e.layer),
          .expert_down = w(weight::expert_down, e.layer),
          .shared_gate = w(weight::shared_gate, e.layer),
          .shared_up = w(weight::shared_up, e.layer),
          .shared_down = w(weight::shared_down, e.layer),
          .dense_gate = w(weight::dense_gate, e.layer),
          .dense_up = w(weight::dense_up, e.layer),
          .dense_down = w(weight::dense_down, e.layer)};
}

/// An executed layer with what it computes by.
template <class Scalar>
struct layer_run {
  executed_layer step{};
  double coefficient = 1;  ///< of both sublayers' writes; not 0 where it is learned
  layer_weights<const Scalar> weights{};
};

/// The coefficient of the writes of executed layer `e`. A learned one whose magnitude is below 2^-40 counts as that:
/// what flows back through a write carries the coefficient, and its gradient is found by dividing by it.
template <class Scalar>
[[nodiscard]] double coefficient_of(const weight_buffer<Scalar>& w, const executed_layer& e) noexcept {
  if (!e.plan.learned) return e.plan.residual.as<double>();
  constexpr double least = 0x1p-40;
  const auto value = static_cast<double>(w(weight::coefficient, e.visit).data[0]);
  return value > -least && value < least ? (value < 0 ? -least : least) : value;
}

/// Whether the layers of a visit by `plan` have the sizes of the others.
[[nodiscard]] constexpr bool is_whole(const visit_plan& plan) noexcept {
  return !is_narrow(plan) && is_whole(plan.expert_hidden) && plan.active == 0;
}
/// Whether some visit's layers have others.
[[nodiscard]] constexpr bool has_partial_visits(const spec& s) noexcept {
  for (int i = 0; i < s.loop.visits.runs(); ++i)
    if (!is_whole(visit_list::plan_of(s.loop.visits, i))) return true;
  return false;
}

/// Calls f(handle) with the architecture of the layers of a visit by `plan`: `arch` where they have its sizes and the
/// compiler knows it, and `part` otherwise.
template <ArchitectureHandle A, class F>
decltype(auto) with_architecture(const A& arch, const visit_plan& plan, const dynamic_arch& part, F&& f) {
  if constexpr (!may_have<A>(has_partial_visits)) {
    return f(arch);
  } else {
    if constexpr (Architecture<A>) {
      if (is_whole(plan)) return f(arch);
    }
    return f(part);
  }
}

/// Where the gradients of an executed layer go.
template <class Scalar>
struct layer_gradients {
  layer_weights<Scalar> weights{};
  double* coefficient = nullptr;  ///< added to; null where it is not learned
};

}  // namespace smelt
