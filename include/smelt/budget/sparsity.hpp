// How sparse is an architecture? Its compute as a share of a fully active model's, against its parameters.
#pragma once

#include <cstdint>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Compute-equivalent active parameters and sparsity against a control.
struct sparsity_figures {
  double n_eq = 0;                        ///< (F / F0) N0: parameters of a control with the same training FLOPs
  double s = 0;                           ///< 1 - n_eq / N; slightly negative is possible and is never clamped
  coverage_gap gap = coverage_gap::none;  ///< set when the convention cannot count a side; n_eq and s are then 0
};

/// The fully active control of `s`: every stored expert is one that a token visits (stored = active), no loop.
[[nodiscard]] constexpr spec fully_active_control(spec s) noexcept {
  s.experts.stored = s.experts.active;
  s.loop = {};
  s.exit_gate = false;
  return s;
}

/// Sparsity of `s` against `control`, both counted alike; N is the figure that `a.params` names. Precondition: both
/// satisfy the rules of spec/rules.hpp.
[[nodiscard]] constexpr sparsity_figures sparsity(const spec& s, const spec& control, const accounting& a) noexcept {
  const flop_count f = flops(s, a.flops);
  const flop_count f0 = flops(control, a.flops);
  if (!f.covered()) return {0, 0, f.gap};
  if (!f0.covered()) return {0, 0, f0.gap};
  const auto n = static_cast<double>(figure_of(parameters(s), a.params));
  const auto n0 = static_cast<double>(figure_of(parameters(control), a.params));
  const double n_eq = static_cast<double>(f.train_per_token) / static_cast<double>(f0.train_per_token) * n0;
  return {n_eq, 1 - n_eq / n, coverage_gap::none};
}

/// Sparsity of `s` against `control` in the papers' accounting.
[[nodiscard]] constexpr sparsity_figures sparsity(const spec& s, const spec& control) noexcept {
  return sparsity(s, control, paper_accounting);
}

/// Sparsity of `s` against its own fully active control in the papers' accounting.
[[nodiscard]] constexpr sparsity_figures sparsity(const spec& s) noexcept {
  return sparsity(s, fully_active_control(s));
}

}  // namespace smelt
