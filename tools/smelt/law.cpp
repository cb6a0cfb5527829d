// smelt law: which laws are there, what do they say, and what follows from a fit?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "fitted_runs.hpp"
#include "law_fit.hpp"
#include "saved_fit.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

nlohmann::ordered_json law_json(const law_description& l) {
  nlohmann::ordered_json j{{"name", l.name}, {"equation", l.equation}};
  if (!l.map.empty()) j["map"] = l.map;
  for (const law::input& x : l.inputs) {
    nlohmann::ordered_json input{{"name", x.name}, {"domain", law::detail::words_for(x.where)}};
    if (!x.unit.empty()) input["unit"] = x.unit;
    j["inputs"].push_back(std::move(input));
  }
  j["response"] = l.losses ? "loss" : "score";
  for (const law::coefficient& c : l.coefficients)
    j["coefficients"].push_back({{"name", c.name}, {"fitted_as", (c.logarithmic ? "ln " : "") + std::string(c.name)}});
  return j;
}

std::string joined_names(const nlohmann::ordered_json& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + item["name"].get<std::string>();
  return text;
}

int list_laws(const common_options& common) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const law_description& l : known_laws()) all.push_back(law_json(l));
  if (common.json) {
    std::cout << all.dump(2) << "\n";
    return exit_fine;
  }
  table t{"", {{"law", false}, {"inputs", false}, {"coefficients", false}}, {}};
  for (const auto& j : all)
    t.rows.push_back({j["name"].get<std::string>(), joined_names(j["inputs"]), joined_names(j["coefficients"])});
  t.notes = {"smelt law show NAME prints the equation"};
  std::cout << to_text(t);
  return exit_fine;
}

int show_law(const common_options& common, const std::string& wanted) {
  const nlohmann::ordered_json found = law_json(law_called(wanted));
  if (common.json) {
    std::cout << found.dump(2) << "\n";
    return exit_fine;
  }
  std::cout << found["equation"].get<std::string>() << "\n";
  if (found.contains("map")) std::cout << found["map"].get<std::string>() << "\n";
  for (const auto& x : found["inputs"]) {
    std::cout << "  " << x["name"].get<std::string>() << ": " << x["domain"].get<std::string>()
              << (x.contains("unit") ? ", " + x["unit"].get<std::string>() : "") << "\n";
  }
  std::string fitted;
  for (const auto& c : found["coefficients"])
    fitted += (fitted.empty() ? "" : ", ") + c["fitted_as"].get<std::string>();
  std::cout << "  fitted: " << fitted << "\n";
  return exit_fine;
}

struct frontier_options {
  std::string fit;
  std::string group;
  std::vector<double> compute;
  std::optional<double> sparsity;
  double level = 0.95;
};

int print_frontier(const common_options& common, const frontier_options& o) {
  const saved_fit fit = read_fit(o.fit);
  if (!has_frontier(fit.law.name))
    throw error(errc::unsupported,
                "a frontier needs a fit of smelt or chinchilla, found " + fit.law.name + " in " + o.fit);
  if (!(o.level > 0 && o.level < 1))
    throw error(errc::invalid_argument, "--level must lie between 0 and 1, found " + law::detail::shown(o.level));
  const double sparsity = sparsity_of(fit, o.sparsity);
  std::vector<saved_group> groups = fit.groups;
  if (!o.group.empty()) groups = {fit.group(o.group)};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  for (const saved_group& g : groups) {
    all.push_back(
        frontier_json(fit.law.name, g, o.compute.empty() ? usual_budgets(g.window) : o.compute, sparsity, o.level));
    text += (text.empty() ? "" : "\n") + to_text(frontier_table(all.back()));
  }
  std::cout << (common.json ? nlohmann::ordered_json{{"fit", o.fit},
                                                     {"form", fit.law.name},
                                                     {"level", o.level},
                                                     {"frontiers", all}}
                                      .dump(2) +
                                  "\n"
                            : text);
  return exit_fine;
}

}  // namespace

void add_law(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("law", "Scaling laws: list, show, frontiers, downstream scores, paired tests");
  command->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "Every law, its inputs and coefficients");
  list->footer("Examples:\n  smelt law list\n  smelt law list --json");
  list->callback([&] { chosen = [&] { return list_laws(common); }; });
  CLI::App* show = command->add_subcommand("show", "One law's equation, inputs and fitted coefficients");
  const auto name = std::make_shared<std::string>();
  show->add_option("NAME", *name, "As smelt law list has it")->required()->type_name("");
  show->footer("Examples:\n  smelt law show chinchilla\n  smelt law show looped-moe:power --json");
  show->callback([&, name] { chosen = [&, name] { return show_law(common, *name); }; });

  CLI::App* frontier = command->add_subcommand("frontier", "F* or N*, D*, L* and tokens a parameter at budgets");
  const auto f = std::make_shared<frontier_options>();
  frontier->add_option("FIT", f->fit, "fit.json of smelt fit --form smelt or chinchilla")->required()->type_name("");
  frontier->add_option("--group", f->group, "One group of the fit (default: all)")->type_name("NAME");
  frontier->add_option("--compute", f->compute, "Budgets in FLOPs (default: powers of ten that the runs reach)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  frontier->add_option("--sparsity", f->sparsity, "The sparsity S (default: the fit's, the middle of its runs)")
      ->type_name("X");
  frontier->add_option("--level", f->level, "What intervals hold (default: 0.95)")->type_name("X");
  frontier->footer("Examples:\n  smelt law frontier fits/fit.json --sparsity 0.95 --compute 1e20,1e21");
  frontier->callback([&, f] { chosen = [&, f] { return print_frontier(common, *f); }; });

  add_law_scores(*command, common, chosen);
  command->footer(
      "Examples:\n  smelt law list\n  smelt law show looped-moe --json\n"
      "  smelt law frontier fits/fit.json --sparsity 0.95 --compute 1e20,1e21\n"
      "  smelt law downstream scores.csv --base baseline --metric task\n"
      "  smelt law paired losses.csv --base baseline --target smelt --by length");
}

}  // namespace smelt::tool
