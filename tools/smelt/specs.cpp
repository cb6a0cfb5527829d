// smelt specs: which architectures have a name?
#include <iostream>
#include <nlohmann/json.hpp>
#include <smelt/io/spec_json.hpp>

#include "budget_report.hpp"
#include "command.hpp"
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
                     {"partner_of", s.partner_of},
                     {"control", s.control},
                     {"params", {{"total", p.total}, {"active", p.active}}},
                     {"spec", spec_to_json(s.value)}});
    }
    std::cout << all.dump(2) << "\n";
    return exit_fine;
  }
  table t{"",
          {{"name", false},
           {"layers"},
           {"executed"},
           {"width"},
           {"experts"},
           {"active"},
           {"parameters"},
           {"of a token"},
           {"what it is", false}},
          {}};
  for (const named_spec& s : preset_specs()) {
    const parameter_count p = parameters(s.value);
    t.rows.push_back({s.name, std::to_string(s.value.layers), std::to_string(schedule(s.value).size()),
                      std::to_string(s.value.width), std::to_string(s.value.experts.stored),
                      std::to_string(s.value.experts.active), compact(static_cast<double>(p.total)),
                      compact(static_cast<double>(p.active)), s.description});
  }
  t.notes.emplace_back("parameters: unique, with embeddings; of a token: those one token uses, input table included");
  std::cout << to_text(t);
  return exit_fine;
}

}  // namespace

void add_specs(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("specs", "List the named architectures");
  command->footer("Examples:\n  smelt specs\n  smelt specs --json");
  command->callback([&common, &chosen] { chosen = [&common] { return list_specs(common); }; });
}

}  // namespace smelt::tool
