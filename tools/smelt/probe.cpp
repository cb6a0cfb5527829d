// smelt probe: what does an architecture do that it must not?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/core/error.hpp>
#include <smelt/model/executable.hpp>
#include <smelt/probe/causality.hpp>
#include <smelt/probe/probe_weights.hpp>
#include <string>

#include "command.hpp"
#include "host_backend.hpp"
#include "kernel_option.hpp"
#include "machine.hpp"
#include "probe_report.hpp"
#include "spec_argument.hpp"

namespace smelt::tool {

namespace {

struct probe_arguments {
  std::string spec;
  std::string lengths;
  kernel_option kernels{};
};

int probe(const common_options& common, const probe_arguments& a) {
  const named_spec of = spec_of_argument(a.spec);
  const spec& s = require_executable(of.value);
  const std::int64_t bytes = parameters(s).total * static_cast<std::int64_t>(sizeof(float));
  if (physical_memory() > 0 && bytes > physical_memory())
    throw error(errc::invalid_argument, of.name + " has " + binary_bytes(static_cast<double>(bytes)) +
                                            " of weights; this machine has " +
                                            binary_bytes(static_cast<double>(physical_memory())) +
                                            " of memory; probe a smaller model with the same visits");
  const kernel_choice choice = choice_of(a.kernels);
  host_backend kernels(static_cast<int>(common.threads > 0 ? common.threads : cores()), choice.compute, choice.set);
  causality_probe found{
      .name = of.name,
      .lengths = a.lengths.empty() ? causality_lengths(s.context) : parse_lengths(a.lengths, s.context),
      .report = {},
      .dtype = std::string(name_of(kernels.compute())),
      .instruction_set = std::string(name_of(kernels.instructions())),
      .seed = common.seed};
  const auto seed = static_cast<std::uint64_t>(common.seed);
  found.report = probe_causality(dynamic_arch(s), kernels, probe_weights<float>(s, seed), found.lengths, seed);
  if (common.json)
    std::cout << to_json(found).dump(2) << "\n";
  else
    std::cout << to_text(causality_table(found));
  return found.report.holds() ? exit_fine : exit_check_failed;
}

}  // namespace

void add_probe(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("probe", "Look for what a model must not do");
  command->require_subcommand(1);
  command->footer("Examples:\n  smelt probe causality nano-smelt\n  smelt probe causality model.json --json");
  CLI::App* causality = command->add_subcommand("causality", "Whether what follows a token changes what it sees");
  const auto a = std::make_shared<probe_arguments>();
  causality->add_option("SPEC", a->spec, "A preset's name or a JSON file")->required()->type_name("");
  causality
      ->add_option("--lengths", a->lengths,
                   "Of sequences, as numbers and ranges (default: 1-9,31-33,63-65 as far as the context goes)")
      ->type_name("LIST");
  add_kernel_options(*causality, a->kernels);
  causality->footer(
      "Batches that agree up to a prefix and differ behind it must have the same routing, hidden states and logits in "
      "the prefix, to the bit. Exits with 1 on a leak, which is named with its length, prefix and position.\n"
      "\nExamples:\n  smelt probe causality nano-smelt\n"
      "  smelt probe causality model.json --lengths 1-9,127-129 --dtype bf16 --json");
  causality->callback([a, &common, &chosen] { chosen = [a, &common] { return probe(common, *a); }; });
}

}  // namespace smelt::tool
