// What does a fitted law look like? Slices of the surface with the runs, frontiers with bands, residuals, clouds of
// resampled coefficients, profiles of the objective, and losses against visits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fitted_runs.hpp"
#include "plot.hpp"

namespace smelt::tool {

namespace detail {

/// Rows that differ in one input alone.
struct slice {
  std::vector<double> inputs;  ///< of one of its rows
  std::vector<std::size_t> rows;
};

/// The rows by all inputs but `along`, those with at least three values of it, in the order of the other inputs.
[[nodiscard]] inline std::vector<slice> slices_along(const std::vector<std::vector<double>>& inputs,
                                                     std::size_t along) {
  std::map<std::vector<double>, slice> by_others;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<double> others = inputs[i];
    others[along] = 0;
    slice& s = by_others[others];
    s.inputs = inputs[i];
    s.rows.push_back(i);
  }
  std::vector<slice> all;
  for (auto& [others, s] : by_others) {
    std::set<double> different;
    for (const std::size_t i : s.rows) different.insert(inputs[i][along]);
    if (different.size() >= 3) all.push_back(std::move(s));
  }
  return all;
}

/// At most `most` of them, evenly chosen.
template <class T>
[[nodiscard]] std::vector<T> some_of(std::vector<T> all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> kept;
  for (std::size_t k = 0; k < most; ++k) kept.push_back(all[k * (all.size() - 1) / (most - 1)]);
  return kept;
}

/// From the least to the most, evenly or by a factor.
[[nodiscard]] inline std::vector<double> steps_between(double least, double most, bool by_factor, int count) {
  std::vector<double> all;
  for (int i = 0; i <= count; ++i) {
    const double part = static_cast<double>(i) / count;
    all.push_back(by_factor ? least * std::pow(most / least, part) : least + (most - least) * part);
  }
  return all;
}

/// The law along one input.
[[nodiscard]] inline std::vector<point> curve_along(const std::string& law, const std::vector<double>& fitted,
                                                    const std::vector<double>& inputs, std::size_t along,
                                                    const std::vector<double>& at) {
  std::vector<std::vector<double>> rows(at.size(), inputs);
  for (std::size_t k = 0; k < at.size(); ++k) rows[k][along] = at[k];
  const std::vector<double> y = predict_law(law, fitted, rows);
  std::vector<point> points;
  for (std::size_t k = 0; k < at.size(); ++k) points.push_back({at[k], y[k]});
  return points;
}

[[nodiscard]] inline std::string with_unit(const law::input& x) {
  return std::string(x.name) + (x.unit.empty() ? "" : ", " + std::string(x.unit));
}

[[nodiscard]] inline std::string response_label(const law_description& law) {
  return law.losses ? "loss, nats/token" : "score";
}

/// The inputs that tell slices apart, without those that follow from others.
[[nodiscard]] inline std::vector<std::size_t> telling_inputs(const std::vector<slice>& all, std::size_t along) {
  std::vector<std::pair<std::size_t, std::size_t>> by_values;  // how many values an input has, and its place
  for (std::size_t j = 0; !all.empty() && j < all.front().inputs.size(); ++j) {
    std::set<double> different;
    for (const slice& s : all) different.insert(s.inputs[j]);
    if (j != along) by_values.emplace_back(different.size(), j);
  }
  std::ranges::sort(by_values);
  std::vector<std::size_t> telling;
  const auto told_apart = [&] {
    std::set<std::vector<double>> different;
    for (const slice& s : all) {
      std::vector<double> values;
      for (const std::size_t j : telling) values.push_back(s.inputs[j]);
      different.insert(std::move(values));
    }
    return different.size();
  };
  for (const auto& [count, j] : by_values) {
    const std::size_t before = told_apart();
    telling.push_back(j);
    if (told_apart() == before && all.size() > 1) telling.pop_back();
  }
  std::ranges::sort(telling);
  return telling;
}

/// A slice by the inputs that tell it apart.
[[nodiscard]] inline std::string slice_name(const law_description& law, const std::vector<std::size_t>& telling,
                                            const slice& one) {
  std::string words;
  for (const std::size_t j : telling) {
    const double x = one.inputs[j];
    words += (words.empty() ? "" : ", ") + std::string(law.inputs[j].name) + " " +
             (x >= 1'000 ? compact(x) : significant(x, 3));
  }
  return words;
}

[[nodiscard]] inline std::string coefficient_label(const law::coefficient& c) {
  return (c.logarithmic ? "ln " : "") + std::string(c.name);
}

}  // namespace detail

/// The law and its runs along one input, the others kept. Where the runs are no grid they are moved to the slices by
/// the law itself.
[[nodiscard]] inline plot slices_plot(const fitted_law& f, const fitted_group& g) {
  const std::vector<std::vector<double>>& inputs = g.runs.rows.inputs;
  std::size_t along = 0;
  std::size_t most = 0;
  for (std::size_t j = 0; j < f.law.inputs.size(); ++j) {
    std::set<double> different;
    for (const auto& x : inputs) different.insert(x[j]);
    const std::size_t count =
        different.size() * (f.law.inputs[j].name == "D" ? 1'000u : 1u);  // tokens, where there are
    if (count > most) std::tie(along, most) = std::pair(j, count);
  }
  double least = law::unbounded;
  double greatest = -law::unbounded;
  for (const auto& x : inputs) {
    least = (std::min)(least, x[along]);
    greatest = (std::max)(greatest, x[along]);
  }
  const bool by_factor = least > 0 && greatest > 4 * least;
  plot p{"The law and its runs: " + g.name, detail::with_unit(f.law.inputs[along]), detail::response_label(f.law)};
  p.log_x = by_factor;

  std::vector<detail::slice> slices = detail::slices_along(inputs, along);
  const bool moved = slices.empty();
  if (moved) {
    const std::size_t other = along == 0 ? 1 : 0;
    std::vector<std::size_t> order(inputs.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(inputs[i][other], i); });
    slices.resize((std::min)(std::size_t{5}, inputs.size()));
    for (std::size_t k = 0; k < order.size(); ++k) slices[k * slices.size() / order.size()].rows.push_back(order[k]);
    for (detail::slice& s : slices) s.inputs = inputs[s.rows[s.rows.size() / 2]];
    p.title += " (moved to the slices by the law)";
  }
  const std::vector<std::size_t> telling = detail::telling_inputs(slices, along);
  slices = detail::some_of(std::move(slices), 6);
  const std::vector<double> at = detail::steps_between(least, greatest, by_factor, 60);
  for (std::size_t k = 0; k < slices.size(); ++k) {
    const int style = static_cast<int>(k);
    series runs{"", {}, drawn_as::marks, style};
    for (const std::size_t i : slices[k].rows) {
      double y = g.runs.rows.responses[i];
      if (moved) {
        std::vector<double> there = slices[k].inputs;
        there[along] = inputs[i][along];
        y *= predict_law(f.law.name, g.fit.fitted, {there}).front() / g.predictions[i];
      }
      runs.points.push_back({inputs[i][along], y});
    }
    p.curves.push_back({detail::slice_name(f.law, telling, slices[k]),
                        detail::curve_along(f.law.name, g.fit.fitted, slices[k].inputs, along, at), drawn_as::line,
                        style});
    p.curves.push_back(std::move(runs));
  }
  return p;
}

/// The frontiers of all groups against training compute, their bands, and the runs.
[[nodiscard]] inline plot frontier_plot(const fitted_law& f, double sparsity, double level) {
  plot p{"Compute-optimal frontier" + (needs_sparsity(f.law.name) ? " at S = " + significant(sparsity, 4) : "") +
             ", and the runs",
         "training FLOPs", "loss, nats/token"};
  p.log_x = true;
  law::compute_window reach{law::unbounded, 0};
  for (const fitted_group& g : f.groups) {
    const law::compute_window w = window_of(f.law.name, g.runs.rows);
    reach = {(std::min)(reach.least, w.least), (std::max)(reach.most, w.most)};
  }
  const std::vector<double> budgets = detail::steps_between(reach.least, 10 * reach.most, true, 40);
  for (std::size_t k = 0; k < f.groups.size(); ++k) {
    const fitted_group& g = f.groups[k];
    const int style = static_cast<int>(k);
    series frontier{g.name, {}, drawn_as::line, style};
    const auto loss = [&](const std::vector<double>& fitted, double compute) {
      return law::frontier_split(two_terms_of(f.law.name, fitted, sparsity), compute).loss;
    };
    try {
      for (const double c : budgets) {
        frontier.points.push_back({c, loss(g.fit.fitted, c)});
        const auto band = interval_of(over_draws(g.resampled, [&](const auto& q) { return loss(q, c); }), level);
        if (band) frontier.band.push_back({c, band->low, band->high});
      }
    } catch (const error&) {  // exponents that have no frontier: the runs are shown alone
      frontier.points.clear();
    }
    series runs{"", {}, drawn_as::marks, style};
    for (std::size_t i = 0; i < g.runs.rows.inputs.size(); ++i)
      runs.points.push_back({compute_of(f.law.name, g.runs.rows.inputs[i]), g.runs.rows.responses[i]});
    p.curves.push_back(std::move(frontier));
    p.curves.push_back(std::move(runs));
  }
  return p;
}

/// What the law misses each run by; runs held out too.
[[nodiscard]] inline plot residuals_plot(const fitted_law& f) {
  plot p{"Residuals", f.law.losses ? "observed loss, nats/token" : "observed score",
         f.law.losses ? "ln predicted - ln observed" : "predicted - observed"};
  p.levels.push_back({"", 0});
  const auto residuals = [&](const std::string& name, const law_rows& rows, const std::vector<double>& predictions) {
    series s{name, {}, drawn_as::marks};
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      const double y = rows.responses[i];
      s.points.push_back({y, f.law.losses ? std::log(predictions[i] / y) : predictions[i] - y});
    }
    if (!s.points.empty()) p.curves.push_back(std::move(s));
  };
  for (const fitted_group& g : f.groups) {
    residuals(g.name, g.runs.rows, g.predictions);
    residuals(g.name + ", held out", g.runs.held_out, g.held_out_predictions);
  }
  return p;
}

/// Resampled coefficients in pairs: all of them, or the twelve pairs that move together most. No panels without draws.
[[nodiscard]] inline plot_grid clouds_plot(const fitted_law& f, const fitted_group& g) {
  std::vector<std::vector<double>> draws;
  for (const auto& p : g.resampled)
    if (!p.empty()) draws.push_back(p);
  plot_grid grid{"Resampled coefficients: " + g.name, {}, 3};
  if (draws.size() < 3) return grid;
  const auto n = static_cast<double>(draws.size());
  struct pair_of_coefficients {
    std::size_t a, b;
    double correlation;
  };
  std::vector<pair_of_coefficients> pairs;
  for (std::size_t a = 0; a < g.fit.fitted.size(); ++a)
    for (std::size_t b = a + 1; b < g.fit.fitted.size(); ++b) {
      double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
      for (const auto& p : draws) {
        mean_a += p[a] / n;
        mean_b += p[b] / n;
      }
      for (const auto& p : draws) {
        aa += (p[a] - mean_a) * (p[a] - mean_a);
        bb += (p[b] - mean_b) * (p[b] - mean_b);
        ab += (p[a] - mean_a) * (p[b] - mean_b);
      }
      if (aa > 0 && bb > 0) pairs.push_back({a, b, ab / std::sqrt(aa * bb)});
    }
  if (pairs.size() > 15) {
    std::ranges::sort(pairs, {}, [](const auto& p) { return std::tuple(-std::fabs(p.correlation), p.a, p.b); });
    pairs.resize(12);
    grid.title += ", the 12 pairs that move together most";
  }
  const std::vector<std::vector<double>> shown = detail::some_of(draws, 300);
  for (const auto& [a, b, correlation] : pairs) {
    plot p{"r = " + fixed(correlation, 2), detail::coefficient_label(f.law.coefficients[a]),
           detail::coefficient_label(f.law.coefficients[b])};
    series cloud{"", {}, drawn_as::marks, 0};
    for (const auto& q : shown) cloud.points.push_back({q[a], q[b]});
    p.curves = {std::move(cloud), {"", {{g.fit.fitted[a], g.fit.fitted[b]}}, drawn_as::marks, 1}};
    grid.panels.push_back(std::move(p));
  }
  return grid;
}

/// How far the objective rises along each coefficient, the others fitted again.
[[nodiscard]] inline plot_grid profiles_plot(const fitted_law& f, const fitted_group& g) {
  plot_grid grid{"Objective along each coefficient, the others fitted again: " + g.name, {}, 3};
  for (const coefficient_profile& profile : g.profiles) {
    const std::string label = detail::coefficient_label(f.law.coefficients[profile.coefficient]);
    plot p{label, label, "objective, least = 1"};
    series s{"", {}};
    for (const auto& [x, objective] : profile.points) s.points.push_back({x, objective / g.fit.objective});
    p.curves = {std::move(s), {"", {{g.fit.fitted[profile.coefficient], 1}}, drawn_as::marks, 1}};
    grid.panels.push_back(std::move(p));
  }
  return grid;
}

/// The place of the visits among a law's inputs; as many as there are inputs without them.
[[nodiscard]] inline std::size_t visits_input(const law_description& law) {
  std::size_t j = 0;
  while (j < law.inputs.size() && law.inputs[j].name != "R" && law.inputs[j].name != "r") ++j;
  return j;
}

/// Losses against visits by one or more laws fitted to the same rows, beside the runs; up to four slices. No panels
/// when no runs differ in their visits alone. `fits` are of one group.
[[nodiscard]] inline plot_grid visits_plot(
    const std::vector<std::pair<const law_description*, const fitted_group*>>& fits) {
  const fitted_group& first = *fits.front().second;
  const law_description& law = *fits.front().first;
  const std::size_t along = visits_input(law);
  plot_grid grid{"Loss against visits: " + first.name, {}, 2};
  if (along == law.inputs.size()) return grid;
  std::vector<std::vector<double>> inputs = first.runs.rows.inputs;
  std::vector<double> responses = first.runs.rows.responses;
  inputs.insert(inputs.end(), first.runs.held_out.inputs.begin(), first.runs.held_out.inputs.end());
  responses.insert(responses.end(), first.runs.held_out.responses.begin(), first.runs.held_out.responses.end());
  double most = 1;
  for (const auto& x : inputs) most = (std::max)(most, x[along]);
  const std::vector<detail::slice> slices = detail::slices_along(inputs, along);
  const std::vector<std::size_t> telling = detail::telling_inputs(slices, along);
  for (const detail::slice& s : detail::some_of(slices, 4)) {
    plot p{detail::slice_name(law, telling, s), "visits", "loss, nats/token"};
    series seen{"runs", {}, drawn_as::marks};
    series held{"runs held out", {}, drawn_as::marks};
    for (const std::size_t i : s.rows)
      (i < first.runs.rows.inputs.size() ? seen : held).points.push_back({inputs[i][along], responses[i]});
    p.curves.push_back(std::move(seen));
    if (!held.points.empty()) p.curves.push_back(std::move(held));
    for (const auto& [form, g] : fits) {
      const auto colon = form->name.find(':');
      p.curves.push_back(
          {colon == std::string::npos ? form->name : form->name.substr(colon + 1),
           detail::curve_along(form->name, g->fit.fitted, s.inputs, along, detail::steps_between(1, most, false, 60))});
    }
    grid.panels.push_back(std::move(p));
  }
  return grid;
}

}  // namespace smelt::tool
