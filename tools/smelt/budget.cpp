// smelt budget: what does an architecture cost, and does it cost what another one does?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "budget_report.hpp"
#include "command.hpp"
#include "spec_argument.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct budget_options {
  std::string spec;
  std::string against;
  std::string control;
  std::string tolerance;
  std::string convention;
  std::int64_t context = 0;
  std::int64_t kv_bytes = 2;
};

int print_budget(const common_options& common, const budget_options& o) {
  if (!o.tolerance.empty() && o.against.empty())
    throw error(errc::invalid_argument, "--tolerance needs an architecture to compare with; add --against SPEC");
  counting by{.context = o.context, .kv_bytes = static_cast<int>(o.kv_bytes)};
  if (!o.convention.empty()) {
    by.flops = convention_of(o.convention);
    by.convention_given = true;
  }
  std::optional<named_spec> control;
  if (!o.control.empty()) control = spec_of_argument(o.control);

  const budgets of = budgets_of(spec_of_argument(o.spec), by, control);
  if (o.against.empty()) {
    std::cout << (common.json ? to_json(of).dump(2) + "\n" : to_text(budgets_table({of})));
    return exit_fine;
  }
  // One length of sequence on both sides, or the FLOPs would compare two different things.
  by.context = of.context;
  const budgets against = budgets_of(spec_of_argument(o.against), by, control);
  const budget_table match = match_of(of, against.of, o.tolerance, by);
  if (common.json) {
    nlohmann::ordered_json j = to_json(of);
    j["against"] = to_json(against);
    j["match"] = to_json(match);
    std::cout << j.dump(2) << "\n";
  } else {
    std::cout << to_text(budgets_table({of, against})) << "\n"
              << to_text(match_table(match, of.of.name, against.of.name));
  }
  return match.ok ? exit_fine : exit_check_failed;
}

}  // namespace

void add_budget(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("budget", "Print what an architecture costs, or check it against another");
  const auto o = std::make_shared<budget_options>();
  command->add_option("SPEC", o->spec, "A preset's name or a JSON file")->required()->type_name("");
  command->add_option("--against", o->against, "Check the budgets against this SPEC; exit 1 when one is off")
      ->type_name("SPEC");
  command
      ->add_option("--tolerance", o->tolerance,
                   "Such as flops=4%,params=1%,kv=4% (the default; kv=5% for a preset's partners)")
      ->type_name("LIST");
  add_count(*command, "--context", o->context, 1, "Tokens of a sequence (default: SPEC's context)");
  command
      ->add_option("--convention", o->convention,
                   "How FLOPs are counted: smelt (default), paper, torchtitan, megatron-72, ...")
      ->type_name("NAME");
  add_count(*command, "--kv-bytes", o->kv_bytes, 1, "Bytes of a KV-cache element (default: 2)", max_kv_bytes);
  command->add_option("--control", o->control, "The fully active SPEC that sparsity is measured against")
      ->type_name("SPEC");
  command->footer(
      "Examples:\n  smelt budget nano\n  smelt budget smelt-200m --convention paper --context 2048\n"
      "  smelt budget nano-smelt --against nano --tolerance flops=4%,params=1%,kv=4%\n"
      "  smelt budget model.json --json");
  command->callback([o, &common, &chosen] { chosen = [o, &common] { return print_budget(common, *o); }; });
}

}  // namespace smelt::tool
