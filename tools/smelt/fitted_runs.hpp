// What does smelt fit find? The law fitted to each group of runs, its resamples, and its errors on runs held out.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <smelt/law/frontier.hpp>
#include <smelt/law/gain.hpp>
#include <smelt/law/intervals.hpp>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.hpp"
#include "law_fit.hpp"
#include "law_table.hpp"
#include "progress.hpp"

namespace smelt::tool {

/// The objective against one coefficient, the others fitted again.
struct coefficient_profile {
  std::size_t coefficient = 0;
  std::vector<std::pair<double, double>> points;  ///< the coefficient as fitted, and the least objective
};

/// One group of runs, fitted.
struct fitted_group {
  std::string name;
  run_group runs;
  law::fit_result fit;
  std::vector<double> predictions;
  std::vector<std::vector<double>> resampled;  ///< coefficients as fitted, a draw each; empty where a draw failed
  std::optional<law::fit_errors> held_out;
  std::vector<double> held_out_predictions;
  std::vector<coefficient_profile> profiles;
};

/// A law fitted to every group.
struct fitted_law {
  law_description law;
  chosen_runs chosen;
  std::vector<fitted_group> groups;
};

/// `x` to so many significant digits.
[[nodiscard]] inline std::string significant(double x, int digits = 6) {
  if (!std::isfinite(x)) return "n/a";
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, x);
  return text;
}

/// The interval of the values that are finite; nothing without any.
[[nodiscard]] inline std::optional<law::interval> interval_of(const std::vector<double>& values, double level) {
  for (const double v : values)
    if (std::isfinite(v)) return law::percentile_interval(values, level);
  return std::nullopt;
}

/// A number of each draw; NaN where the draw failed or the number is refused.
template <class Number>
[[nodiscard]] std::vector<double> over_draws(const std::vector<std::vector<double>>& draws, Number&& number) {
  std::vector<double> all;
  for (const std::vector<double>& p : draws) {
    double value = std::numeric_limits<double>::quiet_NaN();
    try {
      if (!p.empty()) value = number(p);
    } catch (const error&) {  // outside of the number's domain in this draw: counted as failed
      value = std::numeric_limits<double>::quiet_NaN();
    }
    all.push_back(value);
  }
  return all;
}

/// Whether a law has a frontier of compute in closed form.
[[nodiscard]] inline bool has_frontier(const std::string& law) {
  return law == law::sparse_compute::name || law == law::chinchilla::name;
}

/// Whether the frontier is one of a sparsity.
[[nodiscard]] inline bool needs_sparsity(const std::string& law) {
  return law == law::sparse_compute::name;
}

/// The law as two terms, of F (6 N for Chinchilla's law) and D, whose product is the training compute.
[[nodiscard]] inline law::two_term_law two_terms_of(const std::string& law, const std::vector<double>& fitted,
                                                    double sparsity) {
  if (needs_sparsity(law)) {
    law::coefficients_of<law::sparse_compute> p;
    std::ranges::copy(fitted, p.begin());
    return law::at_sparsity(p, sparsity);
  }
  return {std::exp(fitted[2]), fitted[0] + fitted[3] * std::log(6.0), fitted[3], fitted[1], fitted[4]};
}

/// The training compute of one run.
[[nodiscard]] inline double compute_of(const std::string& law, const std::vector<double>& inputs) {
  return needs_sparsity(law) ? inputs[0] * inputs[2] : 6 * inputs[0] * inputs[1];
}

/// From which compute to which the runs of a group reach.
[[nodiscard]] inline law::compute_window window_of(const std::string& law, const law_rows& rows) {
  law::compute_window window{law::unbounded, 0};
  for (const std::vector<double>& x : rows.inputs) {
    window.least = (std::min)(window.least, compute_of(law, x));
    window.most = (std::max)(window.most, compute_of(law, x));
  }
  return window;
}

/// The middle of one input over rows.
[[nodiscard]] inline double median_input(const law_rows& rows, std::size_t input) {
  std::vector<double> values;
  for (const std::vector<double>& x : rows.inputs) values.push_back(x[input]);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// rows:2000, cells:2000, leave-out:0.1:2000 or numpy:4000.
struct bootstrap_request {
  std::string unit;
  double fraction = 0;
  std::int64_t draws = 0;
};

[[nodiscard]] inline bootstrap_request bootstrap_in(const std::string& text) {
  bootstrap_request r;
  const auto first = text.find(':');
  r.unit = text.substr(0, first);
  const auto last = text.rfind(':');
  const bool known = r.unit == "rows" || r.unit == "cells" || r.unit == "leave-out" || r.unit == "numpy";
  if (!known || first == std::string::npos || (r.unit == "leave-out") != (last != first)) {
    throw error(
        errc::invalid_argument,
        "--bootstrap must be rows:DRAWS, cells:DRAWS, leave-out:FRACTION:DRAWS or numpy:DRAWS, found '" + text + "'");
  }
  if (r.unit == "leave-out")
    r.fraction = parse_real(text.substr(first + 1, last - first - 1), "the fraction of --bootstrap");
  r.draws = parse_count(text.substr(last + 1), "the draws of --bootstrap", 1, 1'000'000);
  return r;
}

/// Refits every draw of a request, telling how far it is; the rows of cells go together where `by_cell`. Nothing when
/// the command was asked to stop.
[[nodiscard]] inline std::optional<std::vector<std::vector<double>>> bootstrapped(
    const std::string& law, const std::string& name, const law_rows& rows, const std::vector<std::size_t>& cells,
    std::size_t cell_count, const law::fit_result& full, const law::fit_options& options,
    const bootstrap_request& request, bool by_cell, std::uint64_t seed, const interrupt_guard& interrupt) {
  const auto count = static_cast<std::size_t>(request.draws);
  const std::size_t units = by_cell ? cell_count : rows.inputs.size();
  if (units > 250'000'000 / count) {  // a gigabyte
    throw error(errc::invalid_argument, "--bootstrap: " + std::to_string(count) + " draws of " + std::to_string(units) +
                                            " rows are more than 250,000,000; take fewer");
  }
  const law::resampling all = request.unit == "leave-out" ? law::draw_leaving_out(units, request.fraction, count, seed)
                              : request.unit == "numpy"
                                  ? law::draw_as_numpy(units, count, static_cast<std::uint32_t>(seed))
                                  : law::draw_with_replacement(units, count, seed);
  // the published scheme takes rows as they stand in the file
  const std::vector<std::size_t> unit_of_row = by_cell                   ? cells
                                               : request.unit == "numpy" ? std::vector<std::size_t>()
                                                                         : ranks_of(rows);
  std::vector<std::vector<double>> draws;
  progress shown("bootstrap of " + name, 0, request.draws);
  const std::size_t piece = (std::max)(std::size_t{16}, count / 100);
  for (std::size_t first = 0; first < count; first += piece) {
    if (interrupt.asked()) return std::nullopt;
    const std::size_t here = (std::min)(piece, count - first);
    const auto begin = all.counts.begin() + static_cast<std::ptrdiff_t>(first * units);
    const law::resampling part{units, here, {begin, begin + static_cast<std::ptrdiff_t>(here * units)}};
    for (auto& p : bootstrap_law(law, rows, full, options, part, unit_of_row)) draws.push_back(std::move(p));
    shown.show(static_cast<std::int64_t>(first + here));
  }
  return draws;
}

/// The profile of the objective along every coefficient that is fitted, as far as it rises by half.
[[nodiscard]] inline std::vector<coefficient_profile> profiles_of(const std::string& law, const law_rows& rows,
                                                                  const law::fit_result& full,
                                                                  const law::fit_options& options,
                                                                  const interrupt_guard& interrupt) {
  std::vector<coefficient_profile> all;
  const double enough = 1.5 * full.objective;
  for (std::size_t j = 0; j < full.fitted.size(); ++j) {
    if (interrupt.asked()) break;
    if (full.states[j] == law::coefficient_state::held) continue;
    coefficient_profile p{j, {{full.fitted[j], full.objective}}};
    for (const double side : {-1.0, 1.0}) {
      std::vector<double> values;
      double step = 1e-3 * (std::max)(std::fabs(full.fitted[j]), 0.1);
      for (int k = 0; k < 16; ++k, step *= 1.7) values.push_back(full.fitted[j] + side * step);
      const std::vector<double> found = profile_of_law(law, rows, full, options, j, values, enough);
      for (std::size_t k = 0; k < found.size(); ++k)
        if (std::isfinite(found[k])) p.points.emplace_back(values[k], found[k]);
    }
    std::ranges::sort(p.points);
    all.push_back(std::move(p));
  }
  return all;
}

}  // namespace smelt::tool
