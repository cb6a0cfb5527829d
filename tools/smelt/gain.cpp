// smelt gain: how much compute does one architecture save against another, by their fits?
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/law/gain.hpp>
#include <smelt/law/intervals.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct gain_options {
  std::string fit;
  std::string base;
  std::string target;
  std::vector<double> compute;
  double sparsity = -1;
  std::string convention = "target";
  double level = 0.95;
};

/// One group of a file of smelt fit.
struct fitted_group {
  law::coefficients_of<law::sparse_compute> p{};
  std::vector<std::vector<double>> resampled;
  law::compute_window window;
};

fitted_group group_of(const nlohmann::json& document, const std::string& name) {
  if (!document["groups"].contains(name)) {
    std::string known;
    for (const auto& [other, unused] : document["groups"].items()) known += (known.empty() ? "" : ", ") + other;
    throw error(errc::invalid_argument, "the fit has no group '" + name + "'; it has " + known);
  }
  const nlohmann::json& g = document["groups"][name];
  fitted_group group;
  if (g.at("coefficients").size() != group.p.size())
    throw error(errc::corrupt, "a fit of smelt has 6 coefficients, found " + std::to_string(g["coefficients"].size()));
  for (std::size_t j = 0; j < group.p.size(); ++j) group.p[j] = g["coefficients"][j].at("fitted").get<double>();
  if (g.contains("bootstrap")) group.resampled = g["bootstrap"].at("fitted").get<std::vector<std::vector<double>>>();
  group.window = {g.at("compute_window")[0].get<double>(), g.at("compute_window")[1].get<double>()};
  return group;
}

std::string percentage(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * x);
  return text;
}

std::string six_digits(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

int print_gain(const common_options& common, const gain_options& o) {
  std::ifstream file(o.fit);
  nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (!file || document.is_discarded() || document.value("format", "") != "smelt-fit-1")
    throw error(errc::io, "FIT must be a file that smelt fit wrote; found '" + o.fit + "'");
  if (document.value("form", "") != "smelt") {
    throw error(errc::unsupported,
                "a gain needs a fit of the form smelt, found '" + document.value("form", std::string()) + "'");
  }
  if (o.convention != "target" && o.convention != "baseline")
    throw error(errc::invalid_argument, "--convention must be target or baseline, found '" + o.convention + "'");
  const auto convention = o.convention == "target" ? law::budget_of::target : law::budget_of::baseline;
  const fitted_group base = group_of(document, o.base);
  const fitted_group target = group_of(document, o.target);
  // both fits must reach as far
  const law::compute_window window{(std::max)(base.window.least, target.window.least),
                                   (std::min)(base.window.most, target.window.most)};
  const auto gain_of = [&](const auto& b, const auto& t, double compute) {
    return law::gain_between(law::at_sparsity(b, o.sparsity), law::at_sparsity(t, o.sparsity), compute, convention,
                             window);
  };
  nlohmann::ordered_json out{{"fit", o.fit},
                             {"base", o.base},
                             {"target", o.target},
                             {"sparsity", o.sparsity},
                             {"convention", o.convention},
                             {"compute_window", {window.least, window.most}}};
  table t{"", {{"compute"}, {"gain"}, {"low"}, {"high"}, {"loss"}, {"", false}}, {}};
  for (const double compute : o.compute) {
    const law::compute_gain g = gain_of(base.p, target.p, compute);
    nlohmann::ordered_json j{{"compute", compute},
                             {"gain", g.gain},
                             {"other_compute", g.other},
                             {"loss", g.loss},
                             {"extrapolated", g.extrapolated}};
    std::vector<double> draws;
    if (base.resampled.size() == target.resampled.size()) {
      for (std::size_t i = 0; i < base.resampled.size(); ++i) {
        double value = std::nan("");
        if (base.resampled[i].size() == 6 && target.resampled[i].size() == 6) {
          law::coefficients_of<law::sparse_compute> b;
          law::coefficients_of<law::sparse_compute> s;
          std::ranges::copy(base.resampled[i], b.begin());
          std::ranges::copy(target.resampled[i], s.begin());
          try {
            value = gain_of(b, s, compute).gain;
          } catch (const error&) {  // no gain in this draw: counted as failed below
            value = std::nan("");
          }
        }
        draws.push_back(value);
      }
    }
    std::string low;
    std::string high;
    if (!draws.empty()) {
      const law::interval of = law::percentile_interval(draws, o.level);
      j["interval"] = {of.low, of.high};
      j["draws"] = of.used;
      j["failed"] = of.failed;
      low = percentage(of.low);
      high = percentage(of.high);
    }
    t.rows.push_back(
        {six_digits(compute), percentage(g.gain), low, high, six_digits(g.loss), g.extrapolated ? "extrapolated" : ""});
    out["gains"].push_back(std::move(j));
  }
  t.notes = {"gain: part of compute saved at equal loss, stated at the " + o.convention +
             "'s compute; S = " + six_digits(o.sparsity)};
  std::cout << (common.json ? out.dump(2) + "\n" : to_text(t));
  return exit_fine;
}

}  // namespace

void add_gain(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("gain", "Print the compute that one architecture saves against another");
  const auto o = std::make_shared<gain_options>();
  command->add_option("FIT", o->fit, "fit.json of smelt fit --form smelt --group ...")->required()->type_name("");
  command->add_option("--base", o->base, "The group of the baseline")->required()->type_name("NAME");
  command->add_option("--target", o->target, "The group that is compared with it")->required()->type_name("NAME");
  command->add_option("--compute", o->compute, "Budgets in FLOPs, such as 1e20,1e21")
      ->required()
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--sparsity", o->sparsity, "The sparsity S of both")->required()->type_name("X");
  command->add_option("--convention", o->convention, "Whose compute the budgets are: target (default) or baseline")
      ->type_name("NAME");
  command->add_option("--level", o->level, "What intervals hold (default: 0.95)")->type_name("X");
  command->footer(
      "Example:\n  smelt gain fits/fit.json --base baseline --target smelt --sparsity 0.95 --compute 1e20,1e21");
  command->callback([&, o] { chosen = [&, o] { return print_gain(common, *o); }; });
}

}  // namespace smelt::tool
