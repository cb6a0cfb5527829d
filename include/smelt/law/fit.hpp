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
#include <smelt/law/fit_result.hpp>
#include <smelt/law/observations.hpp>
#include <smelt/law/parallel.hpp>
#include <smelt/law/solver.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt::law {

namespace detail {

[[nodiscard]] inline bounds limits_of(const form_view& form, const fit_options& options) {
  bounds limits = bounds::of_form(form);
  for (const auto& [name, value] : options.hold) {
    std::size_t j = 0;
    while (j < form.size() && form.coefficients[j].name != name) ++j;
    if (j == form.size()) {
      std::vector<std::string> known;
      for (const coefficient& c : form.coefficients) known.emplace_back(c.name);
      throw error(errc::invalid_argument, std::string(form.name) + " has no coefficient '" + name +
                                              "' to hold; did you mean " + nearest_names(name, known, 1).front() + "?");
    }
    const bool logarithmic = form.coefficients[j].logarithmic;
    if (!std::isfinite(value) || (logarithmic && value <= 0)) {
      throw error(errc::invalid_argument, std::string(form.name) + ": held coefficient " + name + " must be " +
                                              (logarithmic ? "above 0" : "finite") + ", found " + shown(value));
    }
    limits.least[j] = limits.most[j] = logarithmic ? std::log(value) : value;
  }
  return limits;
}

/// Bounds for the units of the fit: a held amplitude moves with the units.
[[nodiscard]] inline bounds in_fit_units(const row_table& data, bounds limits) {
  if (limits.free() == limits.size) return limits;
  const auto is_held = [&](std::size_t j) { return limits.least[j] == limits.most[j]; };
  const auto moved_with = [&](double others) {
    coefficient_list p{};
    for (std::size_t j = 0; j < limits.size; ++j) p[j] = is_held(j) ? limits.least[j] : others;
    data.to_units_around(p.data(), 20);
    return p;
  };
  const coefficient_list moved = moved_with(0.5);
  const coefficient_list moved_otherwise = moved_with(0.25);
  for (std::size_t j = 0; j < limits.size; ++j) {
    if (!is_held(j)) continue;
    if (moved[j] != moved_otherwise[j]) {
      throw error(errc::unsupported, std::string(data.form().name) + ": coefficient " +
                                         std::string(data.form().coefficients[j].name) +
                                         " cannot be held while the exponent it belongs to is fitted; hold both");
    }
    limits.least[j] = limits.most[j] = moved[j];
  }
  return limits;
}

/// The form's grid of starts, or random ones in the same box.
[[nodiscard]] inline std::vector<coefficient_list> default_starts(const row_table& data, const fit_options& options) {
  const form_view& form = data.form();
  const std::size_t dimensions = form.start_levels.size();
  const std::vector<double> extremes = data.extremes();
  const summary_view summary = data.summary(extremes);
  std::size_t count = 1;
  for (const int levels : form.start_levels) count *= static_cast<std::size_t>(levels);
  if (options.random_starts > 0) count = static_cast<std::size_t>(options.random_starts);
  const random_stream random(options.seed, 0x6C617773);  // "laws"
  std::vector<coefficient_list> starts(count);
  std::vector<double> at(dimensions + 1);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i;
    for (std::size_t k = 0; k < dimensions; ++k) {
      const auto levels = static_cast<std::size_t>(form.start_levels[k]);
      at[k] = options.random_starts > 0 ? random.uniform(i * dimensions + k)
              : levels == 1             ? 0.5
                                        : static_cast<double>(rest % levels) / static_cast<double>(levels - 1);
      rest /= levels;
    }
    form.start(summary, at.data(), starts[i].data());
  }
  return starts;
}

inline constexpr double smallest_delta = 1e-8;
/// Huber losses of smaller deltas have too little curvature to be led down from afar.
inline constexpr double wide_delta = 1e-3;

/// The minimum near `start` for the options' loss: for small deltas along a path from a larger one. `decrease`: the
/// part of the objective that steps which always lead down must gain to be taken before Newton's.
[[nodiscard]] inline solution settle(objective& f, const bounds& limits, coefficient_list start, double delta,
                                     double decrease = 1e-3) {
  for (double d = wide_delta; d > delta * 1.5; d /= 10) {
    f.set_delta(d);
    start = minimise(f, limits, start, {.decrease = 1e-6}).p;
    start = polish(f, limits, start, 30).p;
  }
  f.set_delta(delta);
  // Newton's steps get there from afar in most cases; the slower ones come first where they do not
  if (decrease < 1) start = minimise(f, limits, start, {.decrease = decrease}).p;
  const solution quick = polish(f, limits, start, 40);
  if (quick.converged) return quick;
  return polish(f, limits, minimise(f, limits, quick.p, {.decrease = 1e-8}).p);
}

/// What the law says of rows and what was seen, in the order of the rows' own, for coefficients in the units of the
/// fit.
struct row_values {
  std::vector<double> fitted;  ///< ln loss, or the score, as the law has it
  std::vector<double> residuals;

  row_values(const row_table& data, const coefficient_list& p) {
    std::vector<pack> rows;
    data.fill(rows);
    objective(data.form(), rows, 1).values(p, fitted);
    for (std::size_t k = 0; k < fitted.size(); ++k) residuals.push_back(fitted[k] - data.fitted(data.order()[k]));
  }
};

[[nodiscard]] inline fit_errors errors_of(const row_table& data, const row_values& at) {
  fit_errors e;
  const bool logs = data.form().fitted == response::logarithm;
  const auto n = static_cast<double>(data.size());
  double mean = 0;
  for (const std::size_t i : data.order()) mean += data.response_of(i) / n;
  double squares = 0;
  double spread = 0;
  for (std::size_t k = 0; k < data.size(); ++k) {
    const double seen = data.response_of(data.order()[k]);
    const double difference = (logs ? std::exp(at.fitted[k]) : at.fitted[k]) - seen;
    if (logs) {
      e.rmse_log += at.residuals[k] * at.residuals[k] / n;
      e.mean_absolute_log += std::fabs(at.residuals[k]) / n;
    }
    e.bias += difference / n;
    squares += difference * difference;
    spread += (seen - mean) * (seen - mean);
  }
  e.rmse_log = std::sqrt(e.rmse_log);
  e.rmse = std::sqrt(squares / n);
  e.r_squared = spread > 0 ? 1 - squares / spread : 0;
  return e;
}

/// The condition of the Jacobian of ln loss (or score): inputs that have a scale are centred, the columns of
/// coefficients that are free have length 1. Infinite where a column vanishes. `p` is in the units of the data.
[[nodiscard]] inline double jacobian_condition(const row_table& data, coefficient_list p,
                                               const std::vector<coefficient_state>& states) {
  const std::size_t n = data.form().size();
  data.to_units_around(p.data(), 0);
  std::vector<pack> rows;
  data.fill(rows, {}, 0);
  std::vector<double> values;
  std::vector<double> slopes;
  objective(data.form(), rows, 1).values(p, values, &slopes);
  triangle products{};
  for (std::size_t k = 0; k < slopes.size(); k += n)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = 0; i <= j; ++i) products[triangle_at(j, i)] += slopes[k + j] * slopes[k + i];
  // a coefficient that is not free becomes a direction of its own, of length 1 like the others: no extreme
  const auto is_free = [&](std::size_t j) { return states[j] == coefficient_state::inside; };
  coefficient_list lengths;
  for (std::size_t j = 0; j < n; ++j) {
    lengths[j] = is_free(j) ? std::sqrt(products[triangle_at(j, j)]) : 1.0;
    if (!(lengths[j] > 0)) return unbounded;
  }
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i <= j; ++i) {
      double& product = products[triangle_at(j, i)];
      product = is_free(j) && is_free(i) ? product / lengths[j] / lengths[i] : i == j ? 1.0 : 0.0;
    }
  // of J^T J, whose condition is the square: good to about 1e8, far above the limit that matters
  const eigenvalue_range spectrum = eigenvalues(n, products);
  return spectrum.least > 0 ? std::sqrt(spectrum.most / spectrum.least) : unbounded;
}

/// Throws invalid_argument when the rows cannot determine the coefficients: fewer rows than coefficients to fit, or all
/// responses equal.
inline void check_enough_rows(const row_table& data, std::size_t free) {
  if (data.size() < free || data.size() == 0) {
    throw error(errc::invalid_argument, std::string(data.form().name) +
                                            ": a fit needs at least as many rows as coefficients, " +
                                            std::to_string(free) + "; found " + std::to_string(data.size()));
  }
  const auto [least, most] = std::minmax_element(data.responses().begin(), data.responses().end());
  if (*least == *most) {
    throw error(errc::invalid_argument, std::string(data.form().name) + ": the responses must differ for a fit; all " +
                                            std::to_string(data.size()) + " are " + shown(*least));
  }
}

[[nodiscard]] inline coefficient_list values_from_fitted(const form_view& form, coefficient_list p) {
  for (std::size_t j = 0; j < form.size(); ++j)
    if (form.coefficients[j].logarithmic) p[j] = std::exp(p[j]);
  return p;
}

/// The coefficients of a result as fitted. Throws mismatch for the result of another form.
[[nodiscard]] inline coefficient_list coefficients_from(const form_view& form, const fit_result& result) {
  if (result.form != form.name || result.fitted.size() != form.size()) {
    throw error(errc::mismatch, "a fit of " + std::string(form.name) + " with " + std::to_string(form.size()) +
                                    " coefficients is needed, found " + result.form + " with " +
                                    std::to_string(result.fitted.size()));
  }
  coefficient_list p{};
  std::copy(result.fitted.begin(), result.fitted.end(), p.begin());
  return p;
}

template <std::size_t N>
[[nodiscard]] coefficient_list list_from(const std::array<double, N>& p) noexcept {
  coefficient_list all{};
  std::copy_n(p.data(), N, all.data());
  return all;
}

}  // namespace detail

/// The coefficients of a result as a form takes them. Throws mismatch for the result of another form.
template <Form F>
[[nodiscard]] coefficients_of<F> coefficients_from(const fit_result& result) {
  return detail::array_from<detail::coefficient_count<F>>(detail::coefficients_from(view_of<F>(), result).data());
}

/// How well coefficients, in the units of the data, describe rows.
[[nodiscard]] inline fit_errors errors_of(const row_table& data, coefficient_list p) {
  data.to_units_around(p.data(), 20);
  return detail::errors_of(data, detail::row_values(data, p));
}
template <Form F>
[[nodiscard]] fit_errors errors_of(const observations<F>& data, const coefficients_of<F>& p) {
  return errors_of(data.table(), detail::list_from(p));
}

/// Fits a form. `starts`, where given, are tried in place of the form's own: coefficients as fitted, for the data's
/// units. Throws invalid_argument for too few rows, equal responses, a delta that is not above 0, or coefficients to
/// hold that do not exist.
[[nodiscard]] inline fit_result fit(const row_table& data, const fit_options& options = {},
                                    std::span<const coefficient_list> starts = {}) {
  const form_view& form = data.form();
  const std::size_t n = form.size();
  if (options.loss == residual_loss::huber && !(options.delta > 0 && std::isfinite(options.delta))) {
    throw error(errc::invalid_argument, "delta of Huber's loss must be above 0, found " + detail::shown(options.delta));
  }
  if (!(options.factor > 0 && std::isfinite(options.factor)))
    throw error(errc::invalid_argument,
                "factor on the objective must be above 0, found " + detail::shown(options.factor));
  const bounds data_limits = detail::limits_of(form, options);
  const std::size_t free = data_limits.free();
  detail::check_enough_rows(data, free);
  const bounds limits = detail::in_fit_units(data, data_limits);

  std::vector<coefficient_list> points(starts.begin(), starts.end());
  for (coefficient_list& p : points) data.to_units_around(p.data(), 20);
  if (points.empty()) points = detail::default_starts(data, options);

  const double delta = options.loss == residual_loss::huber            ? options.delta
                       : options.loss == residual_loss::least_absolute ? detail::smallest_delta
                                                                       : unbounded;
  // starts are led down a Huber loss that has curvature enough; a smaller delta is reached from its best minima
  const double first_delta = (std::max)(delta, detail::wide_delta);
  std::vector<pack> rows;
  data.fill(rows);
  std::vector<solution> ends(points.size());
  const auto run = [&](std::size_t count, auto&& each) {
    for_indices(count, options.threads,
                [&] { return [&, f = objective(form, rows, first_delta)](std::size_t i) mutable { each(f, i); }; });
  };
  run(points.size(),
      [&](objective& f, std::size_t i) { ends[i] = minimise(f, limits, points[i], {.decrease = 1e-4}); });

  // those that may share the best minimum go on
  const double floor = 1e-24 * static_cast<double>(data.size());
  const auto lowest = [&] {
    double least = (std::numeric_limits<double>::infinity)();
    for (const solution& s : ends) least = (std::min)(least, s.value);
    return least;
  };
  double best_value = lowest();
  if (!std::isfinite(best_value))
    throw error(errc::not_finite, std::string(form.name) + ": the objective is finite at none of " +
                                      std::to_string(points.size()) + " starts");
  std::vector<std::size_t> near;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (ends[i].value <= 1.5 * best_value + floor && ends[i].value > 1.0005 * best_value) near.push_back(i);
  run(near.size(),
      [&](objective& f, std::size_t k) { ends[near[k]] = minimise(f, limits, ends[near[k]].p, {.decrease = 1e-7}); });
  best_value = lowest();

  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ends[a].value != ends[b].value ? ends[a].value < ends[b].value : a < b;
  });
  objective f(form, rows, first_delta);
  const auto finish = [&](std::size_t i) { return detail::settle(f, limits, ends[i].p, delta); };

  // the best few are finished, in case that rounding or the path to a smaller delta changes which is best
  solution best;
  const auto same = [&](double a, double b) { return a <= b * 1.001 + floor; };
  std::optional<solution> next;
  std::size_t finished = 0;
  double level = ends[order.front()].value;
  for (const std::size_t i : order) {
    if (!std::isfinite(ends[i].value) || finished == 40) break;
    if (finished >= 3 && ends[i].value <= 1.0005 * level + floor) continue;
    level = ends[i].value;
    ++finished;
    const solution s = finish(i);
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
  r.form = form.name;
  r.loss = options.loss;
  r.delta = delta;
  coefficient_list p = best.p;
  data.to_data_units(p.data());
  const coefficient_list values = detail::values_from_fitted(form, p);
  for (std::size_t j = 0; j < n; ++j) {
    r.names.emplace_back(form.coefficients[j].name);
    r.values.push_back(values[j]);
    r.fitted.push_back(p[j]);
    r.states.push_back(limits.least[j] == limits.most[j] ? coefficient_state::held
                       : best.p[j] <= limits.least[j]    ? coefficient_state::at_least
                       : best.p[j] >= limits.most[j]     ? coefficient_state::at_most
                                                         : coefficient_state::inside);
  }
  const detail::row_values at(data, best.p);
  const auto sum_of_sizes = [](const detail::row_values& of) {
    double sum = 0;
    for (const double residual : of.residuals) sum += std::fabs(residual);
    return sum;
  };
  r.rows = static_cast<std::int64_t>(data.size());
  r.objective = best.value;
  r.gradient = best.gradient;
  if (options.loss == residual_loss::least_absolute) {
    r.objective = sum_of_sizes(at);
    r.gradient /= delta;  // Huber's loss over delta tends to |r|
  }
  r.shown_objective =
      r.objective * options.factor / (options.report == reduction::mean ? static_cast<double>(r.rows) : 1.0);
  const fit_errors e = detail::errors_of(data, at);
  r.rmse_log = e.rmse_log;
  r.rmse = e.rmse;
  r.r_squared = e.r_squared;
  r.mean_absolute_log = e.mean_absolute_log;
  for (const double residual : at.residuals) r.inside_delta += std::fabs(residual) <= delta ? 1 : 0;
  r.condition = detail::jacobian_condition(data, p, r.states);
  r.starts = static_cast<std::int64_t>(points.size());
  for (const solution& s : ends) {
    r.failed += std::isfinite(s.value) ? 0 : 1;
    r.agreeing += same(s.value, best_value) ? 1 : 0;
  }
  if (next) {
    coefficient_list other = next->p;
    data.to_data_units(other.data());
    other = detail::values_from_fitted(form, other);
    r.next_best = basin{
        options.loss == residual_loss::least_absolute ? sum_of_sizes(detail::row_values(data, next->p)) : next->value,
        std::vector<double>(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(n))};
  }

  for (std::size_t j = 0; j < n; ++j) {
    if (r.states[j] == coefficient_state::at_least || r.states[j] == coefficient_state::at_most)
      r.warnings.push_back(r.names[j] + " is at its bound, " + detail::shown(values[j]));
  }
  if (!(r.condition <= condition_limit)) {
    r.warnings.push_back("the condition of the Jacobian is " + detail::shown(r.condition) +
                         ": some combination of coefficients is not determined by these rows");
  }
  if (r.r_squared < 0)
    r.warnings.push_back("R^2 is " + detail::shown(r.r_squared, 3) + ": the mean of the responses is closer to them");
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
template <Form F>
[[nodiscard]] fit_result fit(const observations<F>& data, const fit_options& options = {},
                             std::span<const coefficients_of<F>> starts = {}) {
  std::vector<coefficient_list> points;
  points.reserve(starts.size());
  for (const coefficients_of<F>& p : starts) points.push_back(detail::list_from(p));
  return fit(data.table(), options, points);
}

}  // namespace smelt::law
