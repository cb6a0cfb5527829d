// What are a law's coefficients, and how far can they be trusted? The best minimum of many starts, polished, with all
// that is needed to doubt it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/core/random.hpp>
#include <smelt/law/observations.hpp>
#include <smelt/law/parallel.hpp>
#include <smelt/law/solver.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt::law {

/// How a residual is counted.
enum class residual_loss {
  huber,           ///< r^2/2 up to delta, delta (|r| - delta/2) beyond
  least_absolute,  ///< |r|: the limit of Huber's loss / delta for delta -> 0, taken at delta = 1e-8
  least_squares,   ///< r^2/2: the limit for delta -> infinity
};

/// Whether the objective that is reported is a sum or a mean over rows. The fit is the same.
enum class reduction { sum, mean };

/// What a fit is asked for.
struct fit_options {
  residual_loss loss = residual_loss::huber;
  double delta = 1e-3;             ///< of Huber's loss, in units of ln loss (or of the score)
  std::int64_t random_starts = 0;  ///< 0: the form's grid; else so many points drawn in the same box
  std::uint64_t seed = 0;          ///< of random starts
  std::vector<std::pair<std::string, double>> hold{};  ///< coefficients that are not fitted, as named and shown
  std::size_t threads = 0;                             ///< 0: one a core. Results do not depend on it
  reduction report = reduction::sum;                   ///< of the objective shown
  double factor = 1;                                   ///< on the objective shown
};

/// Where a coefficient ended.
enum class coefficient_state { inside, at_least, at_most, held };

/// A minimum other than the best.
struct basin {
  double objective = 0;
  std::vector<double> values;
};

/// A fitted law.
struct fit_result {
  std::string form;
  std::vector<std::string> names;
  std::vector<double> values;  ///< as in the equation: A, not ln A; for inputs in the data's units
  std::vector<double> fitted;  ///< as fitted: ln A
  std::vector<coefficient_state> states;

  residual_loss loss = residual_loss::huber;
  double delta = 0;
  double objective = 0;        ///< the sum
  double shown_objective = 0;  ///< sum or mean, times the factor asked for
  double gradient = 0;         ///< largest part of the sum's gradient, along coefficients that are free
  double rmse_log = 0;         ///< of ln loss (0 for scores)
  double rmse = 0;             ///< of the loss or score
  double r_squared = 0;        ///< of the loss or score
  double mean_absolute_log = 0;
  double condition = 0;  ///< of the Jacobian, inputs centred, columns of length 1
  std::int64_t rows = 0;
  std::int64_t inside_delta = 0;  ///< rows with |r| <= delta

  std::int64_t starts = 0;
  std::int64_t agreeing = 0;  ///< starts that ended within 0.1 % of the best objective
  std::int64_t failed = 0;    ///< starts at which the objective is not finite
  std::optional<basin> next_best;
  std::vector<std::string> warnings;

  /// The value of a coefficient. Throws invalid_argument for a name the form does not have.
  [[nodiscard]] double value(std::string_view name) const {
    for (std::size_t j = 0; j < names.size(); ++j)
      if (names[j] == name) return values[j];
    const std::vector<std::string> nearest = nearest_names(name, names, 1);
    throw error(errc::invalid_argument, form + " has no coefficient '" + std::string(name) + "'" +
                                            (nearest.empty() ? "" : "; did you mean " + nearest.front() + "?"));
  }
};

/// Above this condition some combination of coefficients is not determined by the data.
inline constexpr double condition_limit = 1e4;

namespace detail {

template <Form F>
[[nodiscard]] bounds<F> limits_of(const fit_options& options) {
  bounds<F> limits = bounds<F>::of_form();
  for (const auto& [name, value] : options.hold) {
    std::size_t j = 0;
    while (j < F::coefficients.size() && F::coefficients[j].name != name) ++j;
    if (j == F::coefficients.size()) {
      std::vector<std::string> known;
      for (const coefficient& c : F::coefficients) known.emplace_back(c.name);
      throw error(errc::invalid_argument, std::string(F::name) + " has no coefficient '" + name +
                                              "' to hold; did you mean " + nearest_names(name, known, 1).front() + "?");
    }
    if (!std::isfinite(value) || (F::coefficients[j].logarithmic && value <= 0)) {
      throw error(errc::invalid_argument, std::string(F::name) + ": held coefficient " + name + " must be " +
                                              (F::coefficients[j].logarithmic ? "above 0" : "finite") + ", found " +
                                              shown(value));
    }
    limits.least[j] = limits.most[j] = F::coefficients[j].logarithmic ? std::log(value) : value;
  }
  return limits;
}

/// Bounds for the units of the fit: a held amplitude moves with the units.
template <Form F>
[[nodiscard]] bounds<F> in_fit_units(const observations<F>& data, bounds<F> limits) {
  coefficients_of<F> held{};
  bool any = false;
  for (std::size_t j = 0; j < held.size(); ++j) {
    const bool is = limits.least[j] == limits.most[j];
    held[j] = is ? limits.least[j] : 0.5;
    any = any || is;
  }
  if (!any) return limits;
  const coefficients_of<F> moved = data.to_fit_units(held);
  coefficients_of<F> other = held;
  for (std::size_t j = 0; j < held.size(); ++j)
    if (limits.least[j] != limits.most[j]) other[j] = 0.25;
  const coefficients_of<F> moved_otherwise = data.to_fit_units(other);
  for (std::size_t j = 0; j < held.size(); ++j) {
    if (limits.least[j] != limits.most[j]) continue;
    if (moved[j] != moved_otherwise[j]) {
      throw error(errc::unsupported, std::string(F::name) + ": coefficient " + std::string(F::coefficients[j].name) +
                                         " cannot be held while the exponent it belongs to is fitted; hold both");
    }
    limits.least[j] = limits.most[j] = moved[j];
  }
  return limits;
}

/// The points of the unit cube that starts are made of.
template <Form F>
[[nodiscard]] std::vector<coefficients_of<F>> default_starts(const observations<F>& data, const fit_options& options) {
  constexpr std::size_t dimensions = start_dimensions<F>;
  const auto summary = data.summary();
  std::vector<coefficients_of<F>> starts;
  std::array<double, dimensions> at{};
  if (options.random_starts > 0) {
    const random_stream random(options.seed, 0x6C617773);  // "laws"
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(options.random_starts); ++i) {
      for (std::size_t k = 0; k < dimensions; ++k) at[k] = random.uniform(i * dimensions + k);
      starts.push_back(F::start(summary, at));
    }
    return starts;
  }
  std::size_t count = 1;
  for (const int levels : F::start_levels) count *= static_cast<std::size_t>(levels);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i;
    for (std::size_t k = 0; k < dimensions; ++k) {
      const auto levels = static_cast<std::size_t>(F::start_levels[k]);
      at[k] = levels == 1 ? 0.5 : static_cast<double>(rest % levels) / static_cast<double>(levels - 1);
      rest /= levels;
    }
    starts.push_back(F::start(summary, at));
  }
  return starts;
}

/// sum |r|, for coefficients in the units of the fit.
template <Form F>
[[nodiscard]] double sum_of_sizes(const observations<F>& data, const coefficients_of<F>& p) {
  double sum = 0;
  for (const std::size_t i : data.order()) {
    coefficients_of<F> gradient;
    sum += std::fabs(F::evaluate(p, data.prepared(i), gradient) - data.fitted(i));
  }
  return sum;
}

inline constexpr double smallest_delta = 1e-8;
/// Huber losses of smaller deltas have too little curvature to be led down from afar.
inline constexpr double wide_delta = 1e-3;

/// The minimum near `start` for the options' loss: for small deltas along a path from a larger one.
template <Form F>
[[nodiscard]] solution<F> settle(objective<F>& f, const bounds<F>& limits, coefficients_of<F> start, double delta) {
  for (double d = wide_delta; d > delta * 1.5; d /= 10) {
    f.set_delta(d);
    start = minimise(f, limits, start, {.decrease = 1e-6}).p;
    start = polish(f, limits, start, 30).p;
  }
  f.set_delta(delta);
  // Newton's steps get there from afar in most cases; the slower ones come first where they do not
  const solution<F> near = minimise(f, limits, start, {.decrease = 1e-3});
  const solution<F> quick = polish(f, limits, near.p, 40);
  if (quick.converged) return quick;
  return polish(f, limits, minimise(f, limits, quick.p, {.decrease = 1e-8}).p);
}

}  // namespace detail

/// The coefficients of a result as a form takes them. Throws mismatch for the result of another form.
template <Form F>
[[nodiscard]] coefficients_of<F> coefficients_from(const fit_result& result) {
  coefficients_of<F> p;
  if (result.form != F::name || result.fitted.size() != p.size()) {
    throw error(errc::mismatch, "a fit of " + std::string(F::name) + " with " + std::to_string(p.size()) +
                                    " coefficients is needed, found " + result.form + " with " +
                                    std::to_string(result.fitted.size()));
  }
  std::ranges::copy(result.fitted, p.begin());
  return p;
}

/// Coefficients as fitted (ln A) from coefficients as written (A), and back. Throws invalid_argument for an amplitude
/// that is not above 0.
template <Form F>
[[nodiscard]] coefficients_of<F> fitted_from_values(coefficients_of<F> values) {
  for (std::size_t j = 0; j < values.size(); ++j) {
    if (!F::coefficients[j].logarithmic) continue;
    if (!(values[j] > 0)) {
      throw error(errc::invalid_argument, std::string(F::name) + ": coefficient " +
                                              std::string(F::coefficients[j].name) + " must be above 0, found " +
                                              detail::shown(values[j]));
    }
    values[j] = std::log(values[j]);
  }
  return values;
}
template <Form F>
[[nodiscard]] coefficients_of<F> values_from_fitted(coefficients_of<F> p) {
  for (std::size_t j = 0; j < p.size(); ++j)
    if (F::coefficients[j].logarithmic) p[j] = std::exp(p[j]);
  return p;
}

/// How well coefficients (in the data's units) describe rows. R^2 is 1 - sum (y - f)^2 / sum (y - mean)^2.
struct fit_errors {
  double rmse_log = 0;
  double rmse = 0;
  double bias = 0;  ///< mean of prediction - observation
  double r_squared = 0;
  double mean_absolute_log = 0;
};

template <Form F>
[[nodiscard]] fit_errors errors_of(const observations<F>& data, const coefficients_of<F>& p) {
  fit_errors e;
  const coefficients_of<F> q = data.to_fit_units(p);
  const auto n = static_cast<double>(data.size());
  double mean = 0;
  for (const std::size_t i : data.order()) mean += data.response_of(i) / n;
  double squares = 0;
  double spread = 0;
  for (const std::size_t i : data.order()) {
    coefficients_of<F> gradient;
    const double value = F::evaluate(q, data.prepared(i), gradient);
    const double residual = value - data.fitted(i);
    const double difference = (F::fitted == response::logarithm ? std::exp(value) : value) - data.response_of(i);
    if (F::fitted == response::logarithm) {
      e.rmse_log += residual * residual / n;
      e.mean_absolute_log += std::fabs(residual) / n;
    }
    e.bias += difference / n;
    squares += difference * difference;
    spread += (data.response_of(i) - mean) * (data.response_of(i) - mean);
  }
  e.rmse_log = std::sqrt(e.rmse_log);
  e.rmse = std::sqrt(squares / n);
  e.r_squared = spread > 0 ? 1 - squares / spread : 0;
  return e;
}

/// The condition of the Jacobian of ln loss (or score): inputs that have a scale are centred, the columns of
/// coefficients that are free have length 1. Infinite where a column vanishes.
template <Form F>
[[nodiscard]] double jacobian_condition(const observations<F>& data, const coefficients_of<F>& p,
                                        const std::vector<coefficient_state>& states) {
  const coefficients_of<F> q = data.to_units_around(p, 0);
  coefficient_matrix<F> products = coefficient_matrix<F>::Zero();
  for (const std::size_t i : data.order()) {
    coefficients_of<F> gradient;
    static_cast<void>(F::evaluate(q, data.prepared_around(i, 0), gradient));
    const Eigen::Map<const coefficient_vector<F>> slope(gradient.data());
    for (int j = 0; j < coefficient_total<F>; ++j) products.col(j) += slope[j] * slope;
  }
  // a coefficient that is not free becomes a direction of its own, of length 1 like the others: no extreme
  for (int j = 0; j < coefficient_total<F>; ++j) {
    if (states[static_cast<std::size_t>(j)] == coefficient_state::inside) continue;
    products.row(j).setZero();
    products.col(j).setZero();
    products(j, j) = 1;
  }
  const coefficient_vector<F> lengths = products.diagonal().cwiseSqrt();
  if (!(lengths.minCoeff() > 0)) return unbounded;
  for (int j = 0; j < coefficient_total<F>; ++j) products.col(j) = products.col(j).cwiseQuotient(lengths) / lengths[j];
  // of J^T J, whose condition is the square: good to about 1e8, far above the limit that matters
  const coefficient_vector<F> spectrum = detail::eigenvalues<F>(products);
  const double least = spectrum.minCoeff();
  return least > 0 ? std::sqrt(spectrum.maxCoeff() / least) : unbounded;
}

/// Throws invalid_argument when the rows cannot determine the coefficients: fewer rows than coefficients to fit, or all
/// responses equal.
template <Form F>
void check_enough_rows(const observations<F>& data, std::size_t free) {
  if (data.size() < free || data.size() == 0) {
    throw error(errc::invalid_argument, std::string(F::name) + ": a fit needs at least as many rows as coefficients, " +
                                            std::to_string(free) + "; found " + std::to_string(data.size()));
  }
  const auto [least, most] = std::ranges::minmax(data.responses());
  if (least == most) {
    throw error(errc::invalid_argument, std::string(F::name) + ": the responses must differ for a fit; all " +
                                            std::to_string(data.size()) + " are " + detail::shown(least));
  }
}

/// Fits a form. `starts`, where given, are tried in place of the form's own: coefficients as fitted, for the data's
/// units. Throws invalid_argument for too few rows, equal responses, a delta that is not above 0, or coefficients to
/// hold that do not exist.
template <Form F>
[[nodiscard]] fit_result fit(const observations<F>& data, const fit_options& options = {},
                             std::span<const coefficients_of<F>> starts = {}) {
  constexpr std::size_t n = detail::coefficient_count<F>;
  if (options.loss == residual_loss::huber && !(options.delta > 0 && std::isfinite(options.delta))) {
    throw error(errc::invalid_argument, "delta of Huber's loss must be above 0, found " + detail::shown(options.delta));
  }
  if (!(options.factor > 0 && std::isfinite(options.factor)))
    throw error(errc::invalid_argument,
                "factor on the objective must be above 0, found " + detail::shown(options.factor));
  const bounds<F> data_limits = detail::limits_of<F>(options);
  std::size_t free = 0;
  for (std::size_t j = 0; j < n; ++j) free += data_limits.least[j] < data_limits.most[j] ? 1u : 0u;
  check_enough_rows(data, free);
  const bounds<F> limits = detail::in_fit_units(data, data_limits);

  std::vector<coefficients_of<F>> points;
  if (starts.empty()) {
    points = detail::default_starts(data, options);
  } else {
    for (const coefficients_of<F>& p : starts) points.push_back(data.to_fit_units(p));
  }

  const double delta = options.loss == residual_loss::huber            ? options.delta
                       : options.loss == residual_loss::least_absolute ? detail::smallest_delta
                                                                       : unbounded;
  // starts are led down a Huber loss that has curvature enough; a smaller delta is reached from its best minima
  const double first_delta = (std::max)(delta, detail::wide_delta);
  const std::vector<row_block<F>> rows = data.blocks();
  std::vector<solution<F>> ends(points.size());
  const auto run = [&](std::size_t count, auto&& each) {
    for_indices(count, options.threads,
                [&] { return [&, f = objective<F>(rows, first_delta)](std::size_t i) mutable { each(f, i); }; });
  };
  run(points.size(),
      [&](objective<F>& f, std::size_t i) { ends[i] = minimise(f, limits, points[i], {.decrease = 1e-4}); });

  // those that may share the best minimum go on
  const double floor = 1e-24 * static_cast<double>(data.size());
  const auto lowest = [&] {
    double least = (std::numeric_limits<double>::infinity)();
    for (const solution<F>& s : ends) least = (std::min)(least, s.value);
    return least;
  };
  double best_value = lowest();
  if (!std::isfinite(best_value))
    throw error(errc::not_finite, std::string(F::name) + ": the objective is finite at none of " +
                                      std::to_string(points.size()) + " starts");
  std::vector<std::size_t> near;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (ends[i].value <= 1.5 * best_value + floor && ends[i].value > 1.0005 * best_value) near.push_back(i);
  run(near.size(), [&](objective<F>& f, std::size_t k) {
    ends[near[k]] = minimise(f, limits, ends[near[k]].p, {.decrease = 1e-7});
  });
  best_value = lowest();

  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(ends[i].value, i); });
  objective<F> f(rows, first_delta);
  const auto finish = [&](std::size_t i) { return detail::settle(f, limits, ends[i].p, delta); };

  // the best few are finished, in case that rounding or the path to a smaller delta changes which is best
  solution<F> best;
  const auto same = [&](double a, double b) { return a <= b * 1.001 + floor; };
  std::optional<solution<F>> next;
  std::size_t finished = 0;
  double level = ends[order.front()].value;
  for (const std::size_t i : order) {
    if (!std::isfinite(ends[i].value) || finished == 40) break;
    if (finished >= 3 && ends[i].value <= 1.0005 * level + floor) continue;
    level = ends[i].value;
    ++finished;
    const solution<F> s = finish(i);
    const auto above = [&](double a, double b) { return a > b * (1 + 1e-6) + floor; };
    if (s.value < best.value) {
      if (std::isfinite(best.value) && best.converged && above(best.value, s.value)) next = best;
      best = s;
    } else if (s.converged && above(s.value, best.value) && (!next || s.value < next->value)) {
      next = s;
    }
    if (next && finished >= 4) break;
  }

  fit_result r;
  r.form = F::name;
  r.loss = options.loss;
  r.delta = delta;
  const coefficients_of<F> p = data.to_data_units(best.p);
  const coefficients_of<F> values = values_from_fitted<F>(p);
  for (std::size_t j = 0; j < n; ++j) {
    r.names.emplace_back(F::coefficients[j].name);
    r.values.push_back(values[j]);
    r.fitted.push_back(p[j]);
    r.states.push_back(limits.least[j] == limits.most[j] ? coefficient_state::held
                       : best.p[j] <= limits.least[j]    ? coefficient_state::at_least
                       : best.p[j] >= limits.most[j]     ? coefficient_state::at_most
                                                         : coefficient_state::inside);
  }
  r.rows = static_cast<std::int64_t>(data.size());
  r.objective = best.value;
  r.gradient = best.gradient;
  if (options.loss == residual_loss::least_absolute) {
    r.objective = detail::sum_of_sizes(data, best.p);
    r.gradient /= delta;  // Huber's loss over delta tends to |r|
  }
  r.shown_objective =
      r.objective * options.factor / (options.report == reduction::mean ? static_cast<double>(r.rows) : 1.0);
  const fit_errors e = errors_of(data, p);
  r.rmse_log = e.rmse_log;
  r.rmse = e.rmse;
  r.r_squared = e.r_squared;
  r.mean_absolute_log = e.mean_absolute_log;
  for (std::size_t i = 0; i < data.size(); ++i) {
    coefficients_of<F> gradient;
    r.inside_delta += std::fabs(F::evaluate(best.p, data.prepared(i), gradient) - data.fitted(i)) <= delta ? 1 : 0;
  }
  r.condition = jacobian_condition(data, p, r.states);
  r.starts = static_cast<std::int64_t>(points.size());
  for (const solution<F>& s : ends) {
    r.failed += std::isfinite(s.value) ? 0 : 1;
    r.agreeing += same(s.value, best_value) ? 1 : 0;
  }
  if (next) {
    const coefficients_of<F> other = values_from_fitted<F>(data.to_data_units(next->p));
    r.next_best =
        basin{options.loss == residual_loss::least_absolute ? detail::sum_of_sizes(data, next->p) : next->value,
              std::vector<double>(other.begin(), other.end())};
  }

  for (std::size_t j = 0; j < n; ++j) {
    if (r.states[j] == coefficient_state::at_least || r.states[j] == coefficient_state::at_most)
      r.warnings.push_back(r.names[j] + " is at its bound, " + detail::shown(values[j]));
  }
  if (!(r.condition <= condition_limit)) {
    r.warnings.push_back("the condition of the Jacobian is " + detail::shown(r.condition) +
                         ": some combination of coefficients is not determined by these rows");
  }
  if (r.agreeing * 20 < r.starts) {
    r.warnings.push_back("only " + std::to_string(r.agreeing) + " of " + std::to_string(r.starts) +
                         " starts reached the best minimum");
  }
  if (r.next_best && r.next_best->objective < 1.05 * r.objective)
    r.warnings.push_back("another minimum is within 5 % of the best: " + detail::shown(r.next_best->objective));
  if (r.failed > 0) r.warnings.push_back("the objective was not finite at " + std::to_string(r.failed) + " starts");
  const double steep = 1e-9 * (std::max)(r.objective, std::fabs(delta) < 1 ? delta : 1.0);
  if (options.loss != residual_loss::least_absolute && r.gradient > (std::max)(1e-12, steep))
    r.warnings.push_back("the gradient at the minimum is " + detail::shown(r.gradient) + ", not 0");
  if (r.rows < static_cast<std::int64_t>(2 * free)) {
    r.warnings.push_back(std::to_string(r.rows) + " rows for " + std::to_string(free) +
                         " coefficients leave little to judge the fit by");
  }
  return r;
}

}  // namespace smelt::law
