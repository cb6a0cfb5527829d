// smelt law: which laws are there, and what do they say?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/law/observations.hpp>
#include <string>

#include "command.hpp"
#include "law_catalogue.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

template <class F>
nlohmann::ordered_json law_json(const std::string& name, const std::string& map) {
  nlohmann::ordered_json j{{"name", name}, {"equation", F::equation}};
  if (!map.empty()) j["map"] = map;
  for (const law::input& x : F::inputs) {
    nlohmann::ordered_json input{{"name", x.name}, {"domain", law::detail::words_for(x.where)}};
    if (!x.unit.empty()) input["unit"] = x.unit;
    j["inputs"].push_back(std::move(input));
  }
  j["response"] = F::fitted == law::response::logarithm ? "loss" : "score";
  for (const law::coefficient& c : F::coefficients)
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
  for_laws([&](const std::string& name, const std::string& map, auto tag) {
    all.push_back(law_json<typename decltype(tag)::form>(name, map));
  });
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
  nlohmann::ordered_json found;
  with_law(wanted, [&](auto tag) {
    using form = typename decltype(tag)::form;
    for_laws([&](const std::string& name, const std::string& map, auto other) {
      if constexpr (std::is_same_v<typename decltype(other)::form, form>) found = law_json<form>(name, map);
    });
  });
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

}  // namespace

void add_law(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("law", "List the scaling laws, or show one");
  command->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "Every law, its inputs and coefficients");
  list->callback([&] { chosen = [&] { return list_laws(common); }; });
  CLI::App* show = command->add_subcommand("show", "One law's equation, inputs and fitted coefficients");
  const auto name = std::make_shared<std::string>();
  show->add_option("NAME", *name, "As smelt law list has it")->required()->type_name("");
  show->callback([&, name] { chosen = [&, name] { return show_law(common, *name); }; });
  command->footer("Examples:\n  smelt law list\n  smelt law show looped-moe --json");
}

}  // namespace smelt::tool
