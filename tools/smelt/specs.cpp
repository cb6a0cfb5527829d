// smelt specs: which architectures have a name?
#include <iostream>
#include <nlohmann/json.hpp>
#include <smelt/io/spec_json.hpp>
#include <string>
#include <vector>

#include "budget_report.hpp"
#include "command.hpp"
#include "loop_option.hpp"
#include "spec_argument.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

int list_specs(const common_options& common) {
  if (common.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const named_spec& s : preset_specs()) {
      const parameter_count p = parameters(s.value);
      all.push_back({{"name", s.name},
                     {"description", s.description},
                     {"group", s.group},
                     {"partner_of", s.partner_of},
                     {"control", s.control},
                     {"params", {{"total", p.total}, {"active", p.active}}},
                     {"spec", spec_to_json(s.value)}});
    }
    std::cout << all.dump(2) << "\n";
    return exit_fine;
  }
  // A table a group; groups stand together in the registry.
  std::vector<table> groups;
  for (const named_spec& s : preset_specs()) {
    if (groups.empty() || groups.back().caption != s.group)
      groups.push_back({s.group,
                        {{"name", false},
                         {"layers"},
                         {"executed"},
                         {"visits", false},
                         {"width"},
                         {"experts"},
                         {"active"},
                         {"parameters"},
                         {"of a token"},
                         {"what it is", false}},
                        {}});
    const parameter_count p = parameters(s.value);
    groups.back().rows.push_back({s.name, std::to_string(s.value.layers), std::to_string(schedule(s.value).size()),
                                  span_of(s.value).count == 0 ? "" : plans_text(s.value.loop.visits),
                                  std::to_string(s.value.width), std::to_string(s.value.experts.stored),
                                  std::to_string(s.value.experts.active), compact(static_cast<double>(p.total)),
                                  compact(static_cast<double>(p.active)), s.description});
  }
  groups.back().notes.emplace_back(
      "parameters: unique, with embeddings; of a token: those one token uses, input table included");
  groups.back().notes.emplace_back(
      std::string("visits: as in --loop; also small") + visits_suffix + "2 to small" + visits_suffix +
      std::to_string(max_visits) +
      ", and so for every unlooped name of at least 5 layers: 2 entry and 2 exit layers, " +
      "those between visited that often");
  for (const table& group : groups) std::cout << (&group == groups.data() ? "" : "\n") << to_text(group);
  return exit_fine;
}

}  // namespace

void add_specs(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("specs", "List the named architectures");
  command->footer("Examples:\n  smelt specs\n  smelt specs --json");
  command->callback([&common, &chosen] { chosen = [&common] { return list_specs(common); }; });
}

}  // namespace smelt::tool
