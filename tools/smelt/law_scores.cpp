// smelt law downstream and paired: are scores better than the loss promises, and could differences be chance?
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/io/atomic_file.hpp>
#include <smelt/law/buckets.hpp>
#include <smelt/law/sign_flip.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fitted_runs.hpp"
#include "law_fit.hpp"
#include "law_table.hpp"
#include "plot.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct downstream_options {
  std::string scores;
  std::string group = "arch";
  std::string base;
  std::string metric;
  std::vector<std::string> lower;
  row_choice rows;
  std::string out;
};

/// A test of paired differences as JSON.
nlohmann::ordered_json test_json(const law::sign_flip_result& r) {
  return {{"mean", r.mean},
          {"p_two_sided", r.p_two_sided},
          {"p_greater", r.p_greater},
          {"flips", r.flips},
          {"exact", r.exact}};
}

int print_downstream(const common_options& common, const downstream_options& o) {
  const csv_table data = read_csv(o.scores);
  const std::size_t group_column = data.column(o.group);
  const std::size_t metric_column = o.metric.empty() ? data.columns.size() : data.column(o.metric);
  std::vector<std::string> metrics;
  std::vector<std::string> others;
  bool has_base = false;
  for (const auto& row : data.rows) {
    const std::string metric = o.metric.empty() ? "score" : row[metric_column];
    if (std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
    has_base = has_base || row[group_column] == o.base;
    if (row[group_column] != o.base && std::ranges::find(others, row[group_column]) == others.end())
      others.push_back(row[group_column]);
  }
  if (!has_base || others.empty()) {
    std::string known;
    for (const std::string& g : others) known += (known.empty() ? "" : ", ") + g;
    throw error(errc::invalid_argument,
                has_base
                    ? "the column " + o.group + " of " + o.scores + " has no group beside " + o.base
                    : "the column " + o.group + " of " + o.scores + " has no group '" + o.base + "'; it has " + known);
  }
  for (const std::string& m : o.lower)
    if (std::ranges::find(metrics, m) == metrics.end())
      throw error(errc::invalid_argument, "--lower-is-better has no metric '" + m + "'; did you mean '" +
                                              nearest_names(m, metrics, 1).front() + "'?");
  nlohmann::ordered_json out{{"scores", o.scores}, {"base", o.base}, {"metrics", nlohmann::ordered_json::array()}};
  table t{"", {{"metric", false}, {"group", false}, {"models"}, {"mean residual"}, {"wins"}, {"p"}, {"", false}}, {}};
  std::map<std::string, std::vector<double>> residuals_of;
  plot_grid grid{"Scores against the curve of " + o.base, {}, 2};
  for (const std::string& metric : metrics) {
    const bool lower = std::ranges::find(o.lower, metric) != o.lower.end();
    const law_description& curve = law_called(lower ? "sigmoid-rising" : "sigmoid-falling");
    row_choice choice = o.rows;
    choice.group = o.group;
    if (!o.metric.empty()) choice.where.push_back(o.metric + "=" + metric);
    const chosen_runs runs = choose_runs(data, curve, choice);
    const auto base = runs.groups.find(o.base);
    if (base == runs.groups.end())
      throw error(errc::invalid_argument, "metric " + metric + " has no score of " + o.base);
    law::fit_options options;
    options.loss = law::residual_loss::least_squares;
    options.threads = static_cast<std::size_t>(common.threads);
    law::fit_result fit;
    try {
      fit = fit_law(curve.name, base->second.rows, options);
    } catch (const error& e) {
      throw error(e.code(), "the curve of " + o.base + " on metric " + metric + ": " + e.what());
    }
    nlohmann::ordered_json j{{"metric", metric}, {"better", lower ? "lower" : "higher"}};
    for (std::size_t i = 0; i < fit.names.size(); ++i) j["curve"][fit.names[i]] = fit.values[i];
    j["curve"]["rmse"] = fit.rmse;
    j["curve"]["warnings"] = fit.warnings;
    plot p{metric, "loss, nats/token", "score"};
    double least = law::unbounded;
    double most = -law::unbounded;
    for (const auto& [name, g] : runs.groups) {
      series s{name, {}, drawn_as::marks};
      for (std::size_t i = 0; i < g.rows.inputs.size(); ++i) {
        s.points.push_back({g.rows.inputs[i][0], g.rows.responses[i]});
        least = (std::min)(least, g.rows.inputs[i][0]);
        most = (std::max)(most, g.rows.inputs[i][0]);
      }
      p.curves.push_back(std::move(s));
      if (name == o.base) continue;
      const std::vector<double> promised = predict_law(curve.name, fit.fitted, g.rows.inputs);
      std::vector<double> residuals;
      std::size_t wins = 0;
      for (std::size_t i = 0; i < promised.size(); ++i) {
        residuals.push_back((lower ? -1 : 1) * (g.rows.responses[i] - promised[i]));
        wins += residuals.back() > 0 ? 1u : 0u;
      }
      const law::sign_flip_result test =
          law::sign_flip_test(residuals, 100'000, static_cast<std::uint64_t>(common.seed));
      const auto reach = std::ranges::minmax(base->second.rows.inputs);
      const auto beyond =
          std::ranges::count_if(g.rows.inputs, [&](const auto& x) { return x < reach.min || x > reach.max; });
      nlohmann::ordered_json r{{"group", name},          {"models", residuals.size()}, {"wins", wins},
                               {"extrapolated", beyond}, {"residuals", residuals},     {"sign_flip", test_json(test)}};
      t.rows.push_back({metric, name, std::to_string(residuals.size()), significant(test.mean, 4), std::to_string(wins),
                        significant(test.p_two_sided, 3), beyond > 0 ? std::to_string(beyond) + " extrapolated" : ""});
      auto& all = residuals_of[name];
      all.push_back(test.mean);
      j["groups"].push_back(std::move(r));
    }
    p.curves.push_back({"curve of " + o.base, {}});
    for (int i = 0; i <= 60; ++i) {
      const double x = least + (most - least) * i / 60;
      p.curves.back().points.push_back({x, predict_law(curve.name, fit.fitted, {{x}}).front()});
    }
    grid.panels.push_back(std::move(p));
    for (const std::string& w : fit.warnings) t.notes.push_back("warning: " + metric + ": " + w);
    out["metrics"].push_back(std::move(j));
  }
  for (const auto& [name, means] : residuals_of) {
    const auto wins = std::ranges::count_if(means, [](double m) { return m > 0; });
    out["wins"][name] = {{"metrics", means.size()}, {"won", wins}};
    t.notes.push_back(name + " is above the curve of " + o.base + " on " + std::to_string(wins) + " of " +
                      std::to_string(means.size()) + " metrics");
  }
  t.notes.emplace_back(
      "residual: score less what the baseline's curve promises at the same loss, positive is better; p: two-sided sign "
      "flips");
  if (!o.out.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(o.out, failure);
    if (failure) throw error(errc::io, "cannot make the folder '" + o.out + "': " + failure.message());
    write_file(std::filesystem::path(o.out) / "downstream.json", out.dump(2) + "\n");
    write_file(std::filesystem::path(o.out) / "downstream.svg", to_svg(grid));
  }
  std::cout << (common.json ? out.dump(2) + "\n" : to_text(t));
  return exit_fine;
}

struct paired_options {
  std::string data;
  std::string base;
  std::string target;
  std::string by;
  std::int64_t quantiles = 0;
  std::vector<std::string> where;
};

int print_paired(const common_options& common, const paired_options& o) {
  if (o.quantiles > 0 && !o.by.empty())
    throw error(errc::invalid_argument, "--by and --quantiles are two ways to group; give one");
  const csv_table data = read_csv(o.data);
  const table_source base = source_of(data, o.base);
  const table_source target = source_of(data, o.target);
  const std::size_t by = o.by.empty() ? 0 : data.column(o.by);
  std::vector<row_test> tests;
  for (const std::string& text : o.where) tests.push_back(test_of(data, text, "--where"));
  std::vector<double> bases;
  std::vector<double> differences;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    if (!std::ranges::all_of(tests, [&](const row_test& t) { return t.holds(data, i); })) continue;
    const double b = base.value(data, i);
    const double s = target.value(data, i);
    if (!std::isfinite(b) || !std::isfinite(s))
      throw error(errc::invalid_argument, data.place(i) + ": both " + o.base + " and " + o.target + " must be numbers");
    bases.push_back(b);
    differences.push_back(b - s);
    keys.push_back(o.by.empty() ? "" : data.rows[i][by]);
  }
  if (bases.empty()) throw error(errc::invalid_argument, "no row of " + o.data + " passes --where");
  std::vector<std::string> names;
  std::vector<std::size_t> group(bases.size(), 0);
  if (o.quantiles > 0) {
    group = law::quantile_groups(bases, static_cast<std::size_t>(o.quantiles));
    for (std::int64_t q = 1; q <= o.quantiles; ++q) names.push_back(std::to_string(q));
  } else if (!o.by.empty()) {
    names = keys;
    std::ranges::sort(names, [](const std::string& a, const std::string& b) { return detail::cell_before({a}, {b}); });
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (std::size_t i = 0; i < keys.size(); ++i)
      group[i] = static_cast<std::size_t>(std::ranges::find(names, keys[i]) - names.begin());
  }
  const auto seed = static_cast<std::uint64_t>(common.seed);
  table t{"", {{o.quantiles > 0 ? "quantile" : o.by, false}, {"rows"}, {"mean difference"}, {"wins"}, {"p"}}, {}};
  const auto row = [&](const std::string& name, const std::vector<double>& d) {
    const law::sign_flip_result test = law::sign_flip_test(d, 100'000, seed);
    const auto wins = std::ranges::count_if(d, [](double x) { return x > 0; });
    t.rows.push_back({name, std::to_string(d.size()), significant(test.mean, 5), std::to_string(wins),
                      significant(test.p_two_sided, 3)});
    return nlohmann::ordered_json{{"name", name}, {"rows", d.size()}, {"wins", wins}, {"sign_flip", test_json(test)}};
  };
  nlohmann::ordered_json out{
      {"data", o.data}, {"base", o.base}, {"target", o.target}, {"all", row("all", differences)}};
  for (std::size_t g = 0; g < names.size(); ++g) {
    std::vector<double> d;
    for (std::size_t i = 0; i < group.size(); ++i)
      if (group[i] == g) d.push_back(differences[i]);
    out["groups"].push_back(row(names[g], d));
  }
  const bool ordered =
      names.size() > 1 &&
      (o.quantiles > 0 || std::ranges::all_of(names, [](const std::string& n) { return !std::isnan(number_in(n)); }));
  if (ordered) {
    const double tilt = law::tilt(law::mean_by_group(differences, group));
    out["tilt"] = tilt;
    t.notes.push_back("tilt, " + names.back() + " less " + names.front() + ": " + significant(tilt, 5));
  }
  t.notes.push_back("difference: " + o.base + " - " + o.target + ", positive where " + o.target +
                    " is lower; p: two-sided sign flips");
  if (o.quantiles > 0) t.notes.push_back("quantiles of " + o.base + ", the lowest first");
  std::cout << (common.json ? out.dump(2) + "\n" : to_text(t));
  return exit_fine;
}

}  // namespace

void add_law_scores(CLI::App& law, const common_options& common, action& chosen) {
  CLI::App* downstream =
      law.add_subcommand("downstream", "Scores against what the baseline's curve promises at the same loss");
  const auto d = std::make_shared<downstream_options>();
  downstream->add_option("SCORES", d->scores, "A CSV file: a row a model and metric, with its loss and score")
      ->required()
      ->type_name("");
  downstream->add_option("--base", d->base, "The group whose curve is fitted")->required()->type_name("NAME");
  downstream->add_option("--group", d->group, "The column of groups (default: arch)")->type_name("COLUMN");
  downstream->add_option("--metric", d->metric, "The column of metrics, where there are several")->type_name("COLUMN");
  downstream->add_option("--lower-is-better", d->lower, "Metrics in which a lower score is better")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  downstream->add_option("--where", d->rows.where, "Only rows such as split=test; all of several must hold")
      ->type_name("TEST")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  downstream->add_option("--column", d->rows.columns, "The column of loss or score, or a formula")
      ->type_name("INPUT=COLUMN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  downstream->add_option("--out", d->out, "A folder for downstream.json and downstream.svg")->type_name("DIR");
  downstream->footer(
      "Examples:\n  smelt law downstream scores.csv --base baseline --metric task --lower-is-better perplexity");
  downstream->callback([&, d] { chosen = [&, d] { return print_downstream(common, *d); }; });

  CLI::App* paired = law.add_subcommand("paired", "Could paired differences of losses be chance? By sign flips");
  const auto p = std::make_shared<paired_options>();
  paired->add_option("LOSSES", p->data, "A CSV file: a row a sample, with the losses of both models")
      ->required()
      ->type_name("");
  paired->add_option("--base", p->base, "The column of the baseline's losses")->required()->type_name("COLUMN");
  paired->add_option("--target", p->target, "The column of the other's losses")->required()->type_name("COLUMN");
  paired->add_option("--by", p->by, "A column, such as length or category: each of its values too")
      ->type_name("COLUMN");
  add_count(*paired, "--quantiles", p->quantiles, 1, "Quantiles of the baseline's loss, such as 4", 1'000);
  paired->add_option("--where", p->where, "Only rows such as length>32; all of several must hold")
      ->type_name("TEST")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  paired->footer("Examples:\n  smelt law paired losses.csv --base baseline --target smelt --quantiles 4");
  paired->callback([&, p] { chosen = [&, p] { return print_paired(common, *p); }; });
}

}  // namespace smelt::tool
