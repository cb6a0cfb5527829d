// How is the objective brought to its minimum? Damped steps on the quadratic that lies above it, then Newton's steps on
// its exact Hessian, both within bounds. Every test is relative to the objective itself, so that no unit, factor or
// mean in place of a sum moves where it stops.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <smelt/law/objective.hpp>

namespace smelt::law {

/// When a minimisation stops.
struct solver_options {
  int steps = 500;          ///< at most
  double decrease = 1e-10;  ///< the part of the objective that a step must promise to be worth taking
  double first_damping = 1e-2;
  double least_damping = 1e-8;
};

/// Where a minimisation ended.
template <Form F>
struct solution {
  coefficients_of<F> p{};
  double value = (std::numeric_limits<double>::infinity)();
  double gradient = (std::numeric_limits<double>::infinity)();  ///< its largest part along a coefficient free to move
  int steps = 0;
  bool converged = false;
};

/// Between which values each fitted coefficient stays; least = most holds it.
template <Form F>
struct bounds {
  coefficients_of<F> least;
  coefficients_of<F> most;

  /// The form's own.
  [[nodiscard]] static bounds of_form() noexcept {
    bounds b;
    for (std::size_t j = 0; j < b.least.size(); ++j) {
      b.least[j] = F::coefficients[j].least;
      b.most[j] = F::coefficients[j].most;
    }
    return b;
  }

  void bring_inside(coefficients_of<F>& p) const noexcept {
    for (std::size_t j = 0; j < p.size(); ++j) p[j] = p[j] < least[j] ? least[j] : p[j] > most[j] ? most[j] : p[j];
  }

  /// Is coefficient j at a bound, and does the objective fall only beyond it?
  [[nodiscard]] bool held(const coefficients_of<F>& p, const coefficient_vector<F>& gradient, int j) const noexcept {
    const auto i = static_cast<std::size_t>(j);
    return least[i] == most[i] || (p[i] <= least[i] && gradient[j] > 0) || (p[i] >= most[i] && gradient[j] < 0);
  }
};

namespace detail {

/// The largest part of the gradient along coefficients that are free to move.
template <Form F>
[[nodiscard]] double free_gradient(const bounds<F>& limits, const coefficients_of<F>& p,
                                   const coefficient_vector<F>& gradient) noexcept {
  double most = 0;
  for (int j = 0; j < coefficient_total<F>; ++j)
    if (!limits.held(p, gradient, j)) most = std::fabs(gradient[j]) > most ? std::fabs(gradient[j]) : most;
  return most;
}

/// The eigenvalues of a symmetric matrix, in no order: Jacobi's rotations, which find small ones to full precision.
template <Form F>
[[nodiscard]] coefficient_vector<F> eigenvalues(coefficient_matrix<F> m) noexcept {
  constexpr int n = coefficient_total<F>;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (int p = 0; p < n; ++p) {
      for (int q = 0; q < p; ++q) {
        if (!(std::fabs(m(p, q)) > 1e-17 * std::sqrt(std::fabs(m(p, p) * m(q, q))))) continue;
        off += std::fabs(m(p, q));
        const double theta = (m(q, q) - m(p, p)) / (2 * m(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1);
        const double s = t * c;
        const coefficient_vector<F> a = m.col(p);
        const coefficient_vector<F> b = m.col(q);
        m.col(p) = c * a - s * b;
        m.col(q) = s * a + c * b;
        const coefficient_vector<F> d = m.row(p).transpose();
        const coefficient_vector<F> e = m.row(q).transpose();
        m.row(p) = (c * d - s * e).transpose();
        m.row(q) = (s * d + c * e).transpose();
      }
    }
    if (!(off > 0)) break;
  }
  return m.diagonal();
}

/// In place: rows and columns of held coefficients become those of the unit matrix, so that they do not move.
template <Form F>
void hold(const bounds<F>& limits, const coefficients_of<F>& p, const coefficient_vector<F>& gradient,
          coefficient_matrix<F>& matrix, coefficient_vector<F>& pull) noexcept {
  constexpr int n = coefficient_total<F>;
  pull = gradient;
  for (int j = 0; j < n; ++j) {
    if (!limits.held(p, gradient, j)) continue;
    pull[j] = 0;
    matrix.row(j).setZero();
    matrix.col(j).setZero();
    matrix(j, j) = 1;
  }
}

}  // namespace detail

/// The minimum that damped steps from `start` lead to.
template <Form F>
[[nodiscard, gnu::noinline]] solution<F> minimise(const objective<F>& f, const bounds<F>& limits,
                                                  const coefficients_of<F>& start,
                                                  const solver_options& options = {}) noexcept {
  constexpr int n = coefficient_total<F>;
  solution<F> best;
  best.p = start;
  limits.bring_inside(best.p);
  objective_sums<F> here;
  coefficient_matrix<F> matrix;
  f.evaluate(best.p, here, matrix);
  if (!std::isfinite(here.value)) return best;
  best.value = here.value;

  double rows = 0;
  for (const row_block<F>& row : f.rows()) rows += sum_of(row.weight);
  double damping = options.first_damping;
  double growth = 4;
  objective_sums<F> there;
  coefficient_matrix<F> there_matrix;
  for (; best.steps < options.steps; ++best.steps) {
    coefficient_matrix<F> system = matrix;
    coefficient_vector<F> pull;
    detail::hold<F>(limits, best.p, here.gradient, system, pull);
    coefficient_matrix<F> damped = system;
    const double weight = (std::min)(1.0, rows * f.delta() * f.delta() / here.value);
    for (int j = 0; j < n; ++j)
      damped(j, j) += damping * weight * rows + 1e-10 * system(j, j) + (std::numeric_limits<double>::min)();
    const Eigen::LLT<coefficient_matrix<F>, Eigen::Lower> factors(damped);
    if (factors.info() != Eigen::Success) {
      damping = damping * growth + 1e-12;
      growth *= 2;
      if (damping > 1e12) break;
      continue;
    }
    coefficient_vector<F> step = -factors.solve(pull);
    coefficients_of<F> next = best.p;
    for (int j = 0; j < n; ++j) next[static_cast<std::size_t>(j)] += step[j];
    limits.bring_inside(next);
    for (int j = 0; j < n; ++j) step[j] = next[static_cast<std::size_t>(j)] - best.p[static_cast<std::size_t>(j)];
    const double promised = -(pull.dot(step) + 0.5 * step.dot(system.template selfadjointView<Eigen::Lower>() * step));
    if (!(promised > options.decrease * here.value)) {
      best.converged = true;
      break;
    }
    f.evaluate(next, there, there_matrix);
    const double gained = here.value - there.value;
    if (gained > 0) {
      const double ratio = gained / promised;
      const double t = 2 * ratio - 1;
      damping *= (std::max)(1.0 / 5, 1 - t * t * t);
      damping = (std::max)(damping, options.least_damping);
      growth = 4;
      best.p = next;
      here = there;
      matrix = there_matrix;
      best.value = here.value;
    } else {
      damping *= growth;
      growth *= 2;
      if (damping > 1e12) break;
    }
  }
  best.gradient = detail::free_gradient<F>(limits, best.p, here.gradient);
  return best;
}

/// Newton's steps from a point near a minimum, until rounding is all that is left of the gradient.
template <Form F>
[[nodiscard, gnu::noinline]] solution<F> polish(const objective<F>& f, const bounds<F>& limits,
                                                const coefficients_of<F>& start, int steps = 100) noexcept {
  constexpr int n = coefficient_total<F>;
  solution<F> best;
  best.p = start;
  limits.bring_inside(best.p);
  objective_sums<F> here;
  f.evaluate(best.p, here);
  if (!std::isfinite(here.value)) return best;
  best.value = here.value;
  best.gradient = detail::free_gradient<F>(limits, best.p, here.gradient);
  coefficient_matrix<F> system;
  for (; best.steps < steps; ++best.steps) {
    f.hessian(best.p, system);
    coefficient_vector<F> pull;
    detail::hold<F>(limits, best.p, here.gradient, system, pull);
    // scaled to a unit diagonal, then lifted until it is positive definite
    coefficient_vector<F> scale;
    for (int j = 0; j < n; ++j) scale[j] = 1 / std::sqrt((std::max)(std::fabs(system(j, j)), 1e-300));
    coefficient_matrix<F> scaled = scale.asDiagonal() * system * scale.asDiagonal();
    Eigen::LLT<coefficient_matrix<F>, Eigen::Lower> factors(scaled);
    const bool convex = factors.info() == Eigen::Success;
    if (!convex) {
      const double least = detail::eigenvalues<F>(scaled).minCoeff();
      if (!std::isfinite(least)) break;
      scaled.diagonal().array() += -1.5 * least + 1e-12;
      factors.compute(scaled);
      if (factors.info() != Eigen::Success) break;
    }
    const coefficient_vector<F> step = -(scale.asDiagonal() * factors.solve(scale.asDiagonal() * pull));
    objective_sums<F> there;
    coefficients_of<F> next;
    bool moved = false;
    for (double part = 1; part > 1e-10; part *= 0.5) {
      for (int j = 0; j < n; ++j)
        next[static_cast<std::size_t>(j)] = best.p[static_cast<std::size_t>(j)] + part * step[j];
      limits.bring_inside(next);
      f.evaluate(next, there);
      const double gradient = detail::free_gradient<F>(limits, next, there.gradient);
      // near the minimum the value is flat to rounding, and only the gradient still tells better from worse
      const bool flat = there.value <= here.value * (1 + 1e-13) && gradient < 0.5 * best.gradient;
      if (there.value < here.value * (1 - 1e-13) || flat) {
        moved = true;
        break;
      }
    }
    if (!moved) {
      best.converged = convex;
      break;
    }
    best.p = next;
    here = there;
    best.value = here.value;
    best.gradient = detail::free_gradient<F>(limits, best.p, here.gradient);
  }
  return best;
}

}  // namespace smelt::law
