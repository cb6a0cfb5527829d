// How is a fit told? As JSON that other commands read, as tables, and as one HTML file with every plot.
#pragma once

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fitted_runs.hpp"
#include "html.hpp"
#include "law_plots.hpp"
#include "saved_fit.hpp"
#include "table.hpp"

namespace smelt::tool {

[[nodiscard]] inline std::string state_name(law::coefficient_state s) {
  return s == law::coefficient_state::inside ? "" : s == law::coefficient_state::held ? "held" : "at bound";
}

/// The group as a file of smelt fit would give it back.
[[nodiscard]] inline saved_group saved(const fitted_law& f, const fitted_group& g) {
  saved_group s{g.name, g.fit.fitted, g.resampled, {}, g.fit.rmse, {}};
  if (has_frontier(f.law.name)) s.window = window_of(f.law.name, g.runs.rows);
  for (std::size_t j = 0; j < f.law.inputs.size(); ++j) {
    std::pair<double, double> range{law::unbounded, -law::unbounded};
    for (const auto& x : g.runs.rows.inputs) range = {(std::min)(range.first, x[j]), (std::max)(range.second, x[j])};
    s.ranges[std::string(f.law.inputs[j].name)] = range;
  }
  return s;
}

[[nodiscard]] inline nlohmann::ordered_json errors_json(const law::fit_errors& e, std::size_t rows) {
  return {{"rows", rows}, {"rmse", e.rmse}, {"rmse_log", e.rmse_log}, {"bias", e.bias}, {"r_squared", e.r_squared}};
}

/// Everything about the fit of one group.
[[nodiscard]] inline nlohmann::ordered_json to_json(const fitted_law& f, const fitted_group& g, double sparsity,
                                                    double level) {
  const law::fit_result& r = g.fit;
  nlohmann::ordered_json j;
  for (std::size_t i = 0; i < r.names.size(); ++i) {
    nlohmann::ordered_json c{{"name", r.names[i]}, {"value", r.values[i]}, {"fitted", r.fitted[i]}};
    if (const std::string state = state_name(r.states[i]); !state.empty()) c["state"] = state;
    const bool logarithmic = f.law.coefficients[i].logarithmic;
    const auto of =
        interval_of(over_draws(g.resampled, [&](const auto& p) { return logarithmic ? std::exp(p[i]) : p[i]; }), level);
    if (of) {
      c["interval"] = {of->low, of->high};
      c["standard_error"] = of->deviation;
    }
    j["coefficients"].push_back(std::move(c));
  }
  j["objective"] = r.objective;
  j["gradient"] = r.gradient;
  j["rmse_log"] = r.rmse_log;
  j["rmse"] = r.rmse;
  j["r_squared"] = r.r_squared;
  if (std::isfinite(r.condition)) j["condition"] = r.condition;
  j["rows"] = r.rows;
  j["starts"] = r.starts;
  j["agreeing"] = r.agreeing;
  if (r.next_best) j["next_best"] = {{"objective", r.next_best->objective}, {"values", r.next_best->values}};
  const saved_group s = saved(f, g);
  for (const law::input& x : f.law.inputs) {
    const auto& [least, most] = s.ranges.at(std::string(x.name));
    j["ranges"][std::string(x.name)] = {least, most};
  }
  j["warnings"] = r.warnings;
  if (has_frontier(f.law.name)) {
    j["compute_window"] = {s.window.least, s.window.most};
    try {
      j["frontier"] = frontier_json(f.law.name, s, usual_budgets(s.window), sparsity, level);
    } catch (const error& e) {
      j["warnings"].push_back(e.what());
    }
  }
  if (g.held_out) j["hold_out"] = errors_json(*g.held_out, g.held_out_predictions.size());
  for (const coefficient_profile& p : g.profiles) j["profiles"][r.names[p.coefficient]] = p.points;
  if (!g.resampled.empty()) {
    std::size_t failed = 0;
    for (const auto& p : g.resampled) failed += p.empty() ? 1u : 0u;
    j["bootstrap"] = {{"draws", g.resampled.size()}, {"failed", failed}, {"fitted", g.resampled}};
  }
  return j;
}

/// Coefficients with intervals, and how far to trust them; `j` is the group's JSON.
[[nodiscard]] inline table coefficients_table(const std::string& name, const nlohmann::ordered_json& j) {
  table t{name, {{"coefficient", false}, {"value"}}, {}};
  const bool intervals = j.at("coefficients")[0].contains("interval");
  if (intervals) t.columns.insert(t.columns.end(), {{"low"}, {"high"}, {"std. error"}});
  t.columns.push_back({"", false});
  for (const auto& c : j.at("coefficients")) {
    std::vector<std::string> row{c["name"].get<std::string>(), significant(c["value"].get<double>(), 8)};
    if (intervals) {
      if (c.contains("interval")) {
        row.push_back(significant(c["interval"][0].get<double>()));
        row.push_back(significant(c["interval"][1].get<double>()));
        row.push_back(significant(c["standard_error"].get<double>(), 3));
      } else {
        row.insert(row.end(), 3, "");
      }
    }
    row.push_back(c.value("state", ""));
    t.rows.push_back(std::move(row));
  }
  const auto number = [&](const char* key) { return j.at(key).get<double>(); };
  const auto whole = [&](const char* key) { return grouped(j.at(key).get<std::int64_t>()); };
  t.notes.push_back(whole("rows") + " rows, objective " + significant(number("objective"), 10) + ", RMSE " +
                    significant(number("rmse"), 4) + ", R^2 " + significant(number("r_squared"), 6));
  t.notes.push_back(whole("agreeing") + " of " + whole("starts") + " starts agree, condition " +
                    (j.contains("condition") ? significant(number("condition"), 3) : std::string("infinite")) +
                    (j.contains("next_best")
                         ? ", next best minimum " + significant(j["next_best"]["objective"].get<double>(), 6)
                         : ""));
  if (j.contains("bootstrap"))
    t.notes.push_back(grouped(j["bootstrap"]["draws"].get<std::int64_t>()) + " resamples, " +
                      grouped(j["bootstrap"]["failed"].get<std::int64_t>()) + " failed");
  if (j.contains("hold_out"))
    t.notes.push_back("on " + grouped(j["hold_out"]["rows"].get<std::int64_t>()) + " rows held out: RMSE " +
                      significant(j["hold_out"]["rmse"].get<double>(), 4) + ", bias " +
                      significant(j["hold_out"]["bias"].get<double>(), 3));
  for (const auto& w : j.at("warnings")) t.notes.push_back("warning: " + w.get<std::string>());
  return t;
}

/// The documents of several forms in one table: a row each form and group.
[[nodiscard]] inline nlohmann::ordered_json comparison_json(const std::vector<nlohmann::ordered_json>& documents) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& d : documents)
    for (const auto& [name, g] : d.at("groups").items()) {
      nlohmann::ordered_json row{{"form", d["form"]},
                                 {"group", name},
                                 {"coefficients", g["coefficients"].size()},
                                 {"objective", g["objective"]},
                                 {"rmse", g["rmse"]},
                                 {"rmse_log", g["rmse_log"]},
                                 {"r_squared", g["r_squared"]},
                                 {"warnings", g["warnings"].size()}};
      if (g.contains("hold_out")) row["hold_out"] = g["hold_out"];
      all.push_back(std::move(row));
    }
  return all;
}

[[nodiscard]] inline table comparison_table(const nlohmann::ordered_json& rows) {
  table t{"Forms compared",
          {{"form", false}, {"group", false}, {"coefficients"}, {"objective"}, {"RMSE"}, {"R^2"}, {"warnings"}},
          {}};
  const bool held = rows[0].contains("hold_out");
  if (held) t.columns.insert(t.columns.end(), {{"rows held out"}, {"RMSE there"}, {"bias there"}});
  for (const auto& r : rows) {
    std::vector<std::string> cells{r["form"].get<std::string>(),
                                   r["group"].get<std::string>(),
                                   r["coefficients"].dump(),
                                   significant(r["objective"].get<double>(), 6),
                                   significant(r["rmse"].get<double>(), 4),
                                   significant(r["r_squared"].get<double>(), 6),
                                   r["warnings"].dump()};
    if (held && r.contains("hold_out")) {
      cells.push_back(r["hold_out"]["rows"].dump());
      cells.push_back(significant(r["hold_out"]["rmse"].get<double>(), 4));
      cells.push_back(significant(r["hold_out"]["bias"].get<double>(), 3));
    }
    t.rows.push_back(std::move(cells));
  }
  return t;
}

/// Where the numbers come from: the file, its rows, the columns with units and ranges.
[[nodiscard]] inline std::vector<table> provenance_tables(const fitted_law& f, const nlohmann::ordered_json& document) {
  const auto& from = document.at("provenance");
  table rows{"Rows of " + from.at("data").get<std::string>(), {{"", false}, {"rows"}}, {}};
  for (const auto& [what, count] : from.at("rows").items()) rows.rows.push_back({what, count.dump()});
  for (const auto& [why, count] : from.at("left_out").items()) rows.rows.push_back({"left out: " + why, count.dump()});
  table columns{"Columns", {{"input", false}, {"column or formula", false}, {"unit", false}, {"least"}, {"most"}}, {}};
  for (std::size_t j = 0; j < f.law.inputs.size(); ++j) {
    double least = law::unbounded;
    double most = -law::unbounded;
    for (const fitted_group& g : f.groups)
      for (const auto& x : g.runs.rows.inputs) {
        least = (std::min)(least, x[j]);
        most = (std::max)(most, x[j]);
      }
    columns.rows.push_back({std::string(f.law.inputs[j].name), f.chosen.sources[j].text,
                            std::string(f.law.inputs[j].unit), significant(least, 4), significant(most, 4)});
  }
  columns.rows.push_back(
      {f.law.losses ? "loss" : "score", f.chosen.sources.back().text, f.law.losses ? "nats a token" : "", "", ""});
  columns.notes.emplace_back("coefficients are for these columns in these units, as they stand");
  return {rows, columns};
}

/// One HTML file with every table and plot.
[[nodiscard]] inline std::string fit_report(const std::vector<fitted_law>& fits,
                                            const std::vector<nlohmann::ordered_json>& documents, double sparsity,
                                            double level) {
  html_document report("smelt fit: " + documents.front()["provenance"]["data"].get<std::string>());
  if (fits.size() > 1) report.add(comparison_table(comparison_json(documents)));
  if (fits.size() > 1) {
    for (std::size_t k = 0; k < fits.front().groups.size(); ++k) {
      std::vector<std::pair<const law_description*, const fitted_group*>> of;
      for (const fitted_law& f : fits)
        if (visits_input(f.law) < f.law.inputs.size() && f.law.inputs.size() == fits.front().law.inputs.size())
          of.emplace_back(&f.law, &f.groups[k]);
      if (of.empty()) continue;
      if (const plot_grid g = visits_plot(of); !g.panels.empty()) report.add(g);
    }
  }
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const fitted_law& f = fits[i];
    report.heading(f.law.name);
    report.paragraph(std::string(f.law.equation) + (f.law.map.empty() ? "" : "; " + std::string(f.law.map)) +
                     ". Objective: the sum of " + documents[i]["conventions"]["loss"].get<std::string>() +
                     " losses of " + documents[i]["conventions"]["residual"].get<std::string>() + " residuals" +
                     (documents[i]["conventions"]["delta"].is_null()
                          ? "."
                          : ", delta " + documents[i]["conventions"]["delta"].dump() + "."));
    for (const fitted_group& g : f.groups) {
      const auto& j = documents[i]["groups"][g.name];
      report.add(coefficients_table(g.name, j));
      if (j.contains("frontier")) report.add(frontier_table(j["frontier"]));
      report.add(slices_plot(f, g));
      if (fits.size() == 1)
        if (const plot_grid v = visits_plot({{&f.law, &g}}); !v.panels.empty()) report.add(v);
      if (const plot_grid c = clouds_plot(f, g); !c.panels.empty()) report.add(c);
      if (const plot_grid p = profiles_plot(f, g); !p.panels.empty()) report.add(p);
    }
    if (has_frontier(f.law.name)) report.add(frontier_plot(f, sparsity, level));
    report.add(residuals_plot(f));
    for (const table& t : provenance_tables(f, documents[i])) report.add(t);
  }
  report.heading("To repeat it");
  report.verbatim(documents.front()["provenance"]["command"].get<std::string>() + "\n");
  return report.text();
}

}  // namespace smelt::tool
