// How is the objective brought to its minimum? Damped steps on the quadratic that lies above it, then Newton's steps on
// its exact Hessian, both within bounds. Every test is relative to the objective itself, so that no unit, factor or
// mean in place of a sum moves where it stops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <smelt/law/objective.hpp>
#include <smelt/law/small_matrix.hpp>

namespace smelt::law {

/// When a minimisation stops.
struct solver_options {
  int steps = 500;          ///< at most
  double decrease = 1e-10;  ///< the part of the objective that a step must promise to be worth taking
  double first_damping = 1e-2;
  double least_damping = 1e-8;
};

/// Where a minimisation ended.
struct solution {
  coefficient_list p{};
  double value = (std::numeric_limits<double>::infinity)();
  double gradient = (std::numeric_limits<double>::infinity)();  ///< its largest part along a coefficient free to move
  int steps = 0;
  bool converged = false;
};

/// Between which values each fitted coefficient stays; least = most holds it.
struct bounds {
  std::size_t size = 0;
  coefficient_list least{};
  coefficient_list most{};

  /// The form's own.
  [[nodiscard]] static bounds of_form(const form_view& form) noexcept {
    bounds b;
    for (const coefficient& c : form.coefficients) {
      b.least[b.size] = c.least;
      b.most[b.size++] = c.most;
    }
    return b;
  }

  [[nodiscard]] std::size_t free() const noexcept {
    std::size_t count = 0;
    for (std::size_t j = 0; j < size; ++j) count += least[j] < most[j] ? 1u : 0u;
    return count;
  }

  void bring_inside(coefficient_list& p) const noexcept {
    for (std::size_t j = 0; j < size; ++j) p[j] = p[j] < least[j] ? least[j] : p[j] > most[j] ? most[j] : p[j];
  }

  /// Is coefficient j at a bound, and does the objective fall only beyond it?
  [[nodiscard]] bool held(const coefficient_list& p, const coefficient_list& gradient, std::size_t j) const noexcept {
    return least[j] == most[j] || (p[j] <= least[j] && gradient[j] > 0) || (p[j] >= most[j] && gradient[j] < 0);
  }

  /// The largest part of the gradient along coefficients that are free to move.
  [[nodiscard]] double free_gradient(const coefficient_list& p, const coefficient_list& gradient) const noexcept {
    double largest = 0;
    for (std::size_t j = 0; j < size; ++j)
      if (!held(p, gradient, j)) largest = (std::max)(largest, std::fabs(gradient[j]));
    return largest;
  }
};

namespace detail {

/// In place: rows and columns of held coefficients become those of the unit matrix, so that they do not move.
inline void hold(const bounds& limits, const coefficient_list& p, const coefficient_list& gradient, triangle& matrix,
                 coefficient_list& pull) noexcept {
  const std::size_t n = limits.size;
  for (std::size_t j = 0; j < n; ++j) {
    pull[j] = gradient[j];
    if (!limits.held(p, gradient, j)) continue;
    pull[j] = 0;
    for (std::size_t i = 0; i < n; ++i) matrix[i < j ? triangle_at(j, i) : triangle_at(i, j)] = i == j ? 1.0 : 0.0;
  }
}

}  // namespace detail

/// The minimum that damped steps from `start` lead to.
[[nodiscard]] inline solution minimise(objective& f, const bounds& limits, const coefficient_list& start,
                                       const solver_options& options = {}) noexcept {
  const std::size_t n = limits.size;
  const std::size_t entries = triangle_at(n, 0);
  solution best;
  best.p = start;
  limits.bring_inside(best.p);
  objective_sums here;
  triangle matrix;
  f.with_majorant(best.p, here, matrix);
  if (!std::isfinite(here.value)) return best;
  best.value = here.value;

  const double rows = f.weight();
  double damping = options.first_damping;
  double growth = 4;
  objective_sums there;
  triangle there_matrix;
  triangle system;
  triangle factors;
  coefficient_list pull;
  coefficient_list step;
  for (; best.steps < options.steps; ++best.steps) {
    std::copy_n(matrix.data(), entries, system.data());
    detail::hold(limits, best.p, here.gradient, system, pull);
    std::copy_n(system.data(), entries, factors.data());
    const double weight = (std::min)(1.0, rows * f.delta() * f.delta() / here.value);
    for (std::size_t j = 0; j < n; ++j) {
      double& d = factors[triangle_at(j, j)];
      d += damping * weight * rows + 1e-10 * d + (std::numeric_limits<double>::min)();
    }
    if (!detail::factorise(n, factors)) {
      damping = damping * growth + 1e-12;
      growth *= 2;
      if (damping > 1e12) break;
      continue;
    }
    for (std::size_t j = 0; j < n; ++j) step[j] = -pull[j];
    detail::solve(n, factors, step);
    coefficient_list next;
    for (std::size_t j = 0; j < n; ++j) next[j] = best.p[j] + step[j];
    limits.bring_inside(next);
    double promised = 0;
    for (std::size_t j = 0; j < n; ++j) {
      step[j] = next[j] - best.p[j];
      promised -= pull[j] * step[j];
    }
    promised -= 0.5 * detail::quadratic(n, system, step);
    if (!(promised > options.decrease * here.value)) {
      best.converged = true;
      break;
    }
    f.with_majorant(next, there, there_matrix);
    const double gained = here.value - there.value;
    if (gained > 0) {
      const double t = 2 * gained / promised - 1;
      damping *= (std::max)(1.0 / 5, 1 - t * t * t);
      damping = (std::max)(damping, options.least_damping);
      growth = 4;
      std::copy_n(next.data(), n, best.p.data());
      here.value = there.value;
      std::copy_n(there.gradient.data(), n, here.gradient.data());
      std::copy_n(there_matrix.data(), entries, matrix.data());
      best.value = here.value;
    } else {
      damping *= growth;
      growth *= 2;
      if (damping > 1e12) break;
    }
  }
  best.gradient = limits.free_gradient(best.p, here.gradient);
  return best;
}

/// Newton's steps from a point near a minimum, until rounding is all that is left of the gradient.
[[nodiscard]] inline solution polish(objective& f, const bounds& limits, const coefficient_list& start,
                                     int steps = 100) noexcept {
  const std::size_t n = limits.size;
  const std::size_t entries = triangle_at(n, 0);
  // the Hessian is found with the value where it costs little more and where a whole step is likely to be taken
  bool together = f.form().sum_of_powers;
  solution best;
  best.p = start;
  limits.bring_inside(best.p);
  objective_sums here;
  triangle matrix;
  f.with_hessian(best.p, here, matrix);
  if (!std::isfinite(here.value)) return best;
  best.value = here.value;
  best.gradient = limits.free_gradient(best.p, here.gradient);
  objective_sums there;
  triangle there_matrix;
  triangle scaled;
  triangle factors;
  coefficient_list pull;
  coefficient_list scale;
  coefficient_list step;
  for (; best.steps < steps; ++best.steps) {
    std::copy_n(matrix.data(), entries, scaled.data());
    detail::hold(limits, best.p, here.gradient, scaled, pull);
    // scaled to a unit diagonal, then lifted until it is positive definite
    for (std::size_t j = 0; j < n; ++j)
      scale[j] = 1 / std::sqrt((std::max)(std::fabs(scaled[triangle_at(j, j)]), 1e-300));
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = 0; i <= j; ++i) scaled[triangle_at(j, i)] *= scale[j] * scale[i];
    std::copy_n(scaled.data(), entries, factors.data());
    const bool convex = detail::factorise(n, factors);
    if (!convex) {
      const double least = detail::eigenvalues(n, scaled).least;
      if (!std::isfinite(least)) break;
      for (std::size_t j = 0; j < n; ++j) scaled[triangle_at(j, j)] += -1.5 * least + 1e-12;
      std::copy_n(scaled.data(), entries, factors.data());
      if (!detail::factorise(n, factors)) break;
    }
    for (std::size_t j = 0; j < n; ++j) step[j] = -scale[j] * pull[j];
    detail::solve(n, factors, step);
    double promised = 0;
    for (std::size_t j = 0; j < n; ++j) promised -= 0.5 * pull[j] * scale[j] * step[j];
    // where rounding hides what a whole step gains, a part of it gains no more
    const double least_part = promised > 1e-13 * here.value ? 1e-10 : 0.5;
    coefficient_list next;
    bool moved = false;
    for (double part = 1; part > least_part; part *= 0.5) {
      for (std::size_t j = 0; j < n; ++j) next[j] = best.p[j] + part * scale[j] * step[j];
      limits.bring_inside(next);
      const bool whole = together && part == 1;
      if (whole) {
        f.with_hessian(next, there, there_matrix);
      } else {
        f.evaluate(next, there);
      }
      // near the minimum the value is flat to rounding, and only the gradient still tells better from worse
      const bool flat =
          there.value <= here.value * (1 + 1e-13) && limits.free_gradient(next, there.gradient) < 0.5 * best.gradient;
      if (there.value < here.value * (1 - 1e-13) || flat) {
        moved = true;
        if (!whole) f.with_hessian(next, there, there_matrix);
        together = part == 1 && f.form().sum_of_powers;
        break;
      }
    }
    if (!moved) {
      best.converged = convex;
      break;
    }
    std::copy_n(next.data(), n, best.p.data());
    here.value = there.value;
    std::copy_n(there.gradient.data(), n, here.gradient.data());
    std::copy_n(there_matrix.data(), entries, matrix.data());
    best.value = here.value;
    best.gradient = limits.free_gradient(best.p, here.gradient);
  }
  return best;
}

}  // namespace smelt::law
