// smelt compare: which of several architectures learns better from the same text, at the same budgets?
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <smelt/io/atomic_file.hpp>
#include <string>
#include <vector>

#include "budget_report.hpp"
#include "command.hpp"
#include "compare_report.hpp"
#include "spec_argument.hpp"
#include "training_run.hpp"

namespace smelt::tool {

namespace {

struct compare_arguments {
  std::vector<std::string> specs;
  std::string tolerance;
  bool allow_unmatched = false;
  run_settings settings;
};

int compare_specs(const common_options& common, const compare_arguments& a) {
  const interrupt_guard interrupt;
  std::vector<named_spec> specs;
  std::set<std::string> names;
  for (const std::string& argument : a.specs) {
    specs.push_back(spec_of_argument(argument));
    if (!names.insert(specs.back().name).second)
      throw error(errc::invalid_argument,
                  "every SPEC needs a name of its own, its run's folder; found \"" + specs.back().name + "\" twice");
  }
  if (specs.size() < 2)
    throw error(errc::invalid_argument, "compare needs at least 2 SPECs; found 1 (smelt train trains one)");
  const run_settings settings = completed(a.settings, common, specs);

  comparison result{.models = {}, .stories = {}, .found = {}, .matches = {}, .command_line = common.command_line};
  const counting by{.context = settings.options.length};
  bool matched = true;
  for (const named_spec& s : specs) result.models.push_back(budgets_of(s, by));
  for (std::size_t i = 1; i < specs.size(); ++i) {
    result.matches.push_back(match_of(result.models[i], specs.front(), a.tolerance, by));
    matched = matched && result.matches.back().ok;
  }
  if (!common.json) {
    std::cout << to_text(budgets_table(result.models)) << "\n";
    for (std::size_t i = 1; i < specs.size(); ++i)
      std::cout << to_text(match_table(result.matches[i - 1], specs[i].name, specs.front().name)) << "\n";
    std::cout << std::flush;
  }
  if (!matched && !a.allow_unmatched) {
    if (common.json) std::cout << budgets_json(result).dump(2) << "\n";
    std::cerr << "smelt: error: the budgets do not match, so the losses would not compare architectures; solve for a "
                 "partner with smelt match, widen --tolerance, or add --allow-unmatched\n";
    return exit_check_failed;
  }

  const named_data data = data_of_argument(settings.data, settings.validation_fraction, specs.front().value.vocab);
  for (const named_spec& s : specs) require_trainable(s, data, settings);
  const std::filesystem::path out = settings.out;
  for (const named_spec& s : specs) {
    const bool trained = train_in_folder(out / s.name, s, data, settings, common, interrupt);
    if (trained) {
      result.stories.push_back(story_of(out / s.name));
      result.found.push_back(findings_of(out / s.name, s, data, settings, common, interrupt));
    }
    if (!trained || interrupt.asked()) {
      std::cerr << "smelt: note: go on with the same command and --resume\n";
      return exit_interrupted;
    }
  }

  const nlohmann::ordered_json j = to_json(result);
  write_file(out / "compare.json", j.dump(2) + "\n");
  write_file(out / "loss.svg", to_svg(compute_plot(result)));
  write_file(out / "report.html", to_html(result));
  if (common.json) {
    std::cout << j.dump(2) << "\n";
    return exit_fine;
  }
  std::cout << to_text(losses_table(result)) << "\n" << to_text(runs_table(result)) << "\n";
  for (const table& t : visit_tables(result)) std::cout << to_text(t) << "\n";
  if (const plot p = coefficients_plot(result); !p.curves.empty()) std::cout << to_text(p) << "\n";
  std::cout << to_text(compute_plot(result)) << "\nreport: " << (out / "report.html").string() << "\n";
  return exit_fine;
}

}  // namespace

void add_compare(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command =
      app.add_subcommand("compare", "Train architectures of equal budgets on the same text, and report");
  const auto a = std::make_shared<compare_arguments>();
  command->add_option("SPEC", a->specs, "Presets' names or JSON files; the first is what the others are matched with")
      ->required()
      ->type_name("");
  add_run_options(*command, a->settings);
  command
      ->add_option("--tolerance", a->tolerance,
                   "Such as flops=4%,params=1%,kv=4% (the default; kv=5% for a preset's partners)")
      ->type_name("LIST");
  command->add_flag("--allow-unmatched", a->allow_unmatched, "Train even when the budgets do not match");
  command->footer(
      "Every model sees the same batches in the same order. DIR gets report.html, compare.json, loss.svg, and a folder "
      "a model.\n"
      "\nExamples:\n  smelt compare nano nano-smelt --data builtin --tokens 2M --out runs/nano\n"
      "  smelt compare base.json partner.json --data texts/ --tokens 50M --out runs/mine --resume");
  command->callback([a, &common, &chosen] { chosen = [a, &common] { return compare_specs(common, *a); }; });
}

}  // namespace smelt::tool
