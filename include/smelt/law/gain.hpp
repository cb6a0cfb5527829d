// How much compute does an architecture save? The compute-equivalent gain between two frontiers: both conventions
// named, nothing outside of the domain, what is extrapolated marked.
#pragma once

#include <cmath>
#include <smelt/core/error.hpp>
#include <smelt/law/frontier.hpp>

namespace smelt::law {

/// Whose compute a gain is stated at.
enum class budget_of {
  target,    ///< gain = 1 - C / C_base: C is what the target is given, C_base what the baseline needs for the same loss
  baseline,  ///< gain = 1 - C_target / C: C is what the baseline is given, C_target what the target needs for its loss
};

/// From which compute to which the runs of both fits reach.
struct compute_window {
  double least = 0;
  double most = unbounded;

  [[nodiscard]] bool holds(double compute) const noexcept { return compute >= least && compute <= most; }
};

/// A compute-equivalent gain.
struct compute_gain {
  double budget = 0;          ///< the compute it is stated at, FLOPs
  double other = 0;           ///< the compute that the other architecture needs
  double loss = 0;            ///< of both, nats a token
  double gain = 0;            ///< the part of compute that is saved: 0.1 is 10 %
  bool extrapolated = false;  ///< the budget or the other compute lies outside of the window
};

/// Throws invalid_argument where the loss reached is not above the irreducible loss of the other architecture: there
/// no compute makes them equal.
[[nodiscard]] inline compute_gain gain_between(const two_term_law& baseline, const two_term_law& target, double compute,
                                               budget_of convention, const compute_window& window = {}) {
  const two_term_law& given = convention == budget_of::target ? target : baseline;
  const two_term_law& asked = convention == budget_of::target ? baseline : target;
  compute_gain r;
  r.budget = compute;
  r.loss = frontier_split(given, compute).loss;
  r.other = frontier_compute(asked, r.loss);
  r.gain = convention == budget_of::target ? 1 - compute / r.other : 1 - r.other / compute;
  r.extrapolated = !window.holds(compute) || !window.holds(r.other);
  return r;
}

}  // namespace smelt::law
