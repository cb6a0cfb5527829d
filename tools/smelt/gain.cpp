// smelt gain: how much compute does one architecture save against another, by their fits?
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <smelt/law/buckets.hpp>
#include <smelt/law/gain.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fitted_runs.hpp"
#include "law_table.hpp"
#include "number.hpp"
#include "saved_fit.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct gain_options {
  std::string fit;
  std::string target_fit;
  std::string base;
  std::string target;
  std::vector<double> compute;
  std::optional<double> sparsity;
  std::string convention = "target";
  double level = 0.95;
  std::string by;
  std::string runs;
  bool amplitude = false;
  std::string bootstrap;
};

std::string percentage(double x) {
  return (std::fabs(x) < 1e4 ? fixed(100 * x, 2) : significant(100 * x, 3)) + " %";
}

/// Both architectures' coefficients, in the fit and in every draw.
struct gain_sides {
  std::vector<double> base, target;
  std::vector<std::vector<double>> base_draws, target_draws;
};

/// The gains at every budget, with intervals where the draws of both belong together; `gain_of` asks the library.
template <class Gain>
nlohmann::ordered_json gains_json(const gain_sides& s, const std::vector<double>& compute, double level,
                                  Gain&& gain_of) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const double c : compute) {
    const law::compute_gain g = gain_of(s.base, s.target, c);
    nlohmann::ordered_json j{{"compute", c},
                             {"gain", g.gain},
                             {"other_compute", g.other},
                             {"loss", g.loss},
                             {"extrapolated", g.extrapolated}};
    const std::vector<double> draws = over_draws(s.base_draws, [&](const auto& b) {
      const std::vector<double>& t = s.target_draws[static_cast<std::size_t>(&b - s.base_draws.data())];
      return t.empty() ? std::numeric_limits<double>::quiet_NaN() : gain_of(b, t, c).gain;
    });
    if (const auto of = interval_of(draws, level)) {
      j["interval"] = {of->low, of->high};
      j["draws"] = of->used;
      j["failed"] = of->failed;
    }
    if (!draws.empty()) j["of_draws"] = draws;
    all.push_back(std::move(j));
  }
  return all;
}

std::vector<std::string> gain_cells(const nlohmann::ordered_json& g) {
  const bool interval = g.contains("interval");
  return {significant(g["compute"].get<double>()),
          percentage(g["gain"].get<double>()),
          interval ? percentage(g["interval"][0].get<double>()) : "",
          interval ? percentage(g["interval"][1].get<double>()) : "",
          significant(g["loss"].get<double>()),
          significant(g["other_compute"].get<double>(), 4),
          g["extrapolated"].get<bool>() ? "extrapolated" : ""};
}

/// Numbers by value, other words by letters.
bool value_before(const std::string& a, const std::string& b) {
  return detail::cell_before({a}, {b});
}

int print_gain(const common_options& common, const gain_options& o) {
  const interrupt_guard interrupt;
  const saved_fit first = read_fit(o.fit);
  const saved_fit second = o.target_fit.empty() ? first : read_fit(o.target_fit);
  std::vector<std::string> warnings;
  for (const saved_fit* f : {&first, &second}) {
    if (!has_frontier(f->law.name))
      throw error(errc::unsupported,
                  "a gain needs a fit of smelt or chinchilla, found " + f->law.name + " in " + f->file);
  }
  if (first.law.name != second.law.name)
    warnings.push_back("the form is " + first.law.name + " in " + first.file + " and " + second.law.name + " in " +
                       second.file);
  if (!o.target_fit.empty())
    for (std::string& w : differences_between(first, second)) warnings.push_back(std::move(w));
  if (o.by.empty() && (!o.runs.empty() || o.amplitude || !o.bootstrap.empty()))
    throw error(errc::invalid_argument, std::string(!o.runs.empty() ? "--runs"
                                                    : o.amplitude   ? "--amplitude"
                                                                    : "--bootstrap") +
                                            " goes with --by COLUMN");
  if (o.convention != "target" && o.convention != "baseline")
    throw error(errc::invalid_argument, "--convention must be target or baseline, found '" + o.convention + "'");
  if (!(o.level > 0 && o.level < 1))
    throw error(errc::invalid_argument, "--level must lie between 0 and 1, found " + law::detail::shown(o.level));
  const bool sparse = needs_sparsity(first.law.name) || needs_sparsity(second.law.name);
  const double sparsity = sparsity_of(needs_sparsity(first.law.name) ? first : second, o.sparsity);
  const auto convention = o.convention == "target" ? law::budget_of::target : law::budget_of::baseline;
  const saved_group& base = first.group(o.base);
  const saved_group& target = second.group(o.target);
  if (o.target_fit.empty() && o.base == o.target)
    throw error(errc::invalid_argument, "--base and --target must be two groups, found '" + o.base + "' twice");
  // both fits must reach as far
  const law::compute_window window{(std::max)(base.window.least, target.window.least),
                                   (std::min)(base.window.most, target.window.most)};
  const auto gain_of = [&](const std::vector<double>& b, const std::vector<double>& t, double compute) {
    return law::gain_between(two_terms_of(first.law.name, b, sparsity), two_terms_of(second.law.name, t, sparsity),
                             compute, convention, window);
  };
  gain_sides sides{base.fitted, target.fitted, {}, {}};
  const bool paired = first.bootstrap == second.bootstrap && base.resampled.size() == target.resampled.size();
  if (paired) {
    sides.base_draws = base.resampled;
    sides.target_draws = target.resampled;
  } else if (!base.resampled.empty() || !target.resampled.empty()) {
    warnings.emplace_back("the two were not resampled alike: a gain gets intervals from draws that belong together");
  }
  nlohmann::ordered_json out{{"fit", o.fit},
                             {"target_fit", second.file},
                             {"base", o.base},
                             {"target", o.target},
                             {"sparsity", sparse ? nlohmann::ordered_json(sparsity) : nullptr},
                             {"convention", o.convention},
                             {"definition", o.convention == "target" ? "1 - C / C_base: C is the target's compute"
                                                                     : "1 - C_target / C: C is the baseline's compute"},
                             {"compute_window", {window.least, window.most}},
                             {"level", o.level}};
  out["gains"] = gains_json(sides, o.compute, o.level, gain_of);
  table t{"",
          {{"FLOPs"}, {"gain"}, {"low"}, {"high"}, {"loss"}, {"FLOPs of the other"}, {"", false}},
          {},
          {"gain: the part of compute saved at equal loss, " + out["definition"].get<std::string>() +
               (sparse ? "; S = " + significant(sparsity) : ""),
           "the runs of both reach from " + significant(window.least, 3) + " to " + significant(window.most, 3) +
               " FLOPs; a gain is extrapolated where the compute of either lies outside"}};
  for (const auto& g : out["gains"]) t.rows.push_back(gain_cells(g));
  if (sides.base_draws.empty() && sides.target_draws.empty())
    t.notes.emplace_back("without intervals: they come with smelt fit --bootstrap");

  table categories{
      "",
      {{o.by, false}, {"FLOPs"}, {"gain"}, {"low"}, {"high"}, {"loss"}, {"FLOPs of the other"}, {"", false}},
      {},
      {o.amplitude ? "by " + o.by + ": E and the amplitude A fitted again, the rest of the law kept"
                   : "by " + o.by + ": E fitted again, the rest of the law kept"}};
  if (!o.by.empty()) {
    if (o.runs.empty())
      throw error(errc::invalid_argument,
                  "--by needs the losses of the runs on each " + o.by + "; add --runs FILE.csv");
    const std::string group_column = first.provenance.value("group", std::string());
    if (group_column.empty() || first.file != second.file || !needs_sparsity(first.law.name))
      throw error(errc::unsupported, "--by needs one fit of the form smelt, made with --group");
    const csv_table table_of_runs = read_csv(o.runs);
    const std::size_t by = table_of_runs.column(o.by);
    std::set<std::string> values;
    for (const auto& row : table_of_runs.rows) values.insert(row[by]);
    std::vector<std::string> order(values.begin(), values.end());
    std::ranges::sort(order, value_before);
    std::optional<bootstrap_request> request;
    std::vector<std::string> cells;
    if (!o.bootstrap.empty()) {
      request = bootstrap_in(o.bootstrap);
    } else if (first.bootstrap.is_object()) {
      request = bootstrap_in(first.bootstrap.at("scheme").get<std::string>());
    }
    if (first.bootstrap.is_object()) cells = first.bootstrap.value("cell", std::vector<std::string>());
    law::fit_options options;
    options.threads = static_cast<std::size_t>(common.threads);
    const auto delta = first.conventions.value("delta", nlohmann::json());
    if (delta.is_number()) options.delta = delta.get<double>();
    const std::string loss = first.conventions.value("loss", std::string("huber"));
    if (loss == "lad") options.loss = law::residual_loss::least_absolute;
    if (loss == "squares") options.loss = law::residual_loss::least_squares;
    const std::uint64_t seed = first.bootstrap.is_object() ? first.bootstrap.value("seed", std::uint64_t{0}) : 0;
    for (const std::string& value : order) {
      row_choice choice;
      choice.where = {o.by + "=" + value};
      choice.group = group_column;
      choice.cells = cells;
      choice.cells_by_inputs = request && request->unit == "cells" && cells.empty();
      const chosen_runs runs = choose_runs(table_of_runs, first.law, choice);
      gain_sides side;
      for (const bool is_base : {true, false}) {
        const std::string& name = is_base ? o.base : o.target;
        const saved_group& whole = is_base ? base : target;
        const auto it = runs.groups.find(name);
        if (it == runs.groups.end())
          throw error(errc::invalid_argument,
                      o.runs + " has no rows of " + group_column + " " + name + " with " + o.by + " " + value);
        law::fit_options held = options;
        for (std::size_t j = 0; j < whole.fitted.size(); ++j) {
          const law::coefficient& c = first.law.coefficients[j];
          if (c.name == "E" || (o.amplitude && c.name == "A")) continue;
          held.hold.emplace_back(c.name, c.logarithmic ? std::exp(whole.fitted[j]) : whole.fitted[j]);
        }
        const law::fit_result refitted = fit_law(first.law.name, it->second.rows, held);
        (is_base ? side.base : side.target) = refitted.fitted;
        if (!request) continue;
        auto draws = bootstrapped(first.law.name, name + ", " + o.by + " " + value, it->second.rows, it->second.units,
                                  runs.cell_count, refitted, held, *request, request->unit == "cells", seed, interrupt);
        if (!draws) {
          std::cerr << "smelt: note: stopped\n";
          return exit_interrupted;
        }
        (is_base ? side.base_draws : side.target_draws) = std::move(*draws);
      }
      nlohmann::ordered_json j{{"value", value},
                               {"E", {std::exp(side.base[2]), std::exp(side.target[2])}},
                               {"gains", gains_json(side, o.compute, o.level, gain_of)}};
      for (const auto& g : j["gains"]) {
        categories.rows.push_back(gain_cells(g));
        categories.rows.back().insert(categories.rows.back().begin(), value);
      }
      out["by"]["column"] = o.by;
      out["by"]["refitted"] = o.amplitude ? nlohmann::ordered_json{"E", "A"} : nlohmann::ordered_json{"E"};
      out["by"]["values"].push_back(std::move(j));
    }
    // lengths and quartiles have two ends
    const bool ordered = std::ranges::all_of(order, [](const std::string& v) { return !std::isnan(number_in(v)); });
    if (ordered && order.size() > 1) {
      for (std::size_t k = 0; k < o.compute.size(); ++k) {
        const auto& low = out["by"]["values"].front()["gains"][k];
        const auto& high = out["by"]["values"].back()["gains"][k];
        const double tilt = law::tilt(std::vector{low["gain"].get<double>(), high["gain"].get<double>()});
        nlohmann::ordered_json j{{"compute", o.compute[k]}, {"tilt", tilt}};
        std::string words = "tilt at " + significant(o.compute[k]) + " FLOPs, " + order.back() + " less " +
                            order.front() + ": " + percentage(tilt);
        if (low.contains("of_draws") && high.contains("of_draws")) {
          std::vector<double> draws;
          for (std::size_t i = 0; i < low["of_draws"].size(); ++i)
            draws.push_back(high["of_draws"][i].get<double>() - low["of_draws"][i].get<double>());
          if (const auto of = interval_of(draws, o.level)) {
            j["interval"] = {of->low, of->high};
            words += " [" + percentage(of->low) + ", " + percentage(of->high) + "]";
          }
        }
        out["by"]["tilt"].push_back(std::move(j));
        categories.notes.push_back(std::move(words));
      }
    }
    for (auto& j : out["by"]["values"])
      for (auto& g : j["gains"]) g.erase("of_draws");
  }
  for (auto& g : out["gains"]) g.erase("of_draws");
  out["warnings"] = warnings;
  for (const std::string& w : warnings) std::cerr << "smelt: warning: " << w << "\n";
  std::cout << (common.json ? out.dump(2) + "\n" : o.by.empty() ? to_text(t) : to_text(t) + "\n" + to_text(categories));
  return exit_fine;
}

}  // namespace

void add_gain(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("gain", "Print the compute that one architecture saves against another");
  const auto o = std::make_shared<gain_options>();
  command->add_option("FIT", o->fit, "fit.json of smelt fit --form smelt or chinchilla")->required()->type_name("");
  command->add_option("TARGET_FIT", o->target_fit, "Another one that has the target (default: FIT)")->type_name("");
  command->add_option("--base", o->base, "The group of the baseline")->required()->type_name("NAME");
  command->add_option("--target", o->target, "The group that is compared with it")->required()->type_name("NAME");
  command->add_option("--compute", o->compute, "Budgets in FLOPs, such as 1e20,1e21")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->add_option("--sparsity", o->sparsity, "The sparsity S of both (default: the fit's, the middle of its runs)")
      ->type_name("X");
  command->add_option("--convention", o->convention, "Whose compute the budgets are: target (default) or baseline")
      ->type_name("NAME");
  command->add_option("--level", o->level, "What intervals hold (default: 0.95)")->type_name("X");
  command
      ->add_option("--by", o->by,
                   "A column of --runs, such as category, quartile or length: the gain for each of its values")
      ->type_name("COLUMN");
  command->add_option("--runs", o->runs, "A CSV file with the losses of the runs on each value of --by")
      ->type_name("FILE");
  command->add_flag("--amplitude", o->amplitude, "With --by, fit the amplitude A again too, not E alone");
  command->add_option("--bootstrap", o->bootstrap, "With --by, such as rows:2000 (default: as the fit was)")
      ->type_name("SCHEME");
  command->footer(
      "The two conventions differ: at the target's compute C the gain is 1 - C / C_base, at the baseline's it is\n"
      "1 - C_target / C. Intervals are percentiles over the fit's paired resamples.\n"
      "\nExamples:\n"
      "  smelt gain fits/fit.json --base baseline --target smelt --sparsity 0.95 --compute 1e20,1e21\n"
      "  smelt gain fits/fit.json --base baseline --target smelt --sparsity 0.95 --compute 1e21 --by length --runs "
      "by_length.csv");
  command->callback([&, o] { chosen = [&, o] { return print_gain(common, *o); }; });
}

}  // namespace smelt::tool
