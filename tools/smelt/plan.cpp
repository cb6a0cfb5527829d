// smelt plan: which size, how many experts and how many visits for a budget of compute and of memory?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/law/published.hpp>
#include <smelt/law/selection.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct plan_options {
  std::string law = "looped-moe";
  double flops = 0;
  std::string memory;
  double bits = 16;
  double least_gain = law::published::looped_moe_error;
  std::int64_t visits = 8;
  std::vector<double> experts{1, 2, 4, 8, 16, 32, 64};
};

/// Bytes: a count with KB, MB, GB or TB (powers of 1,000), or a plain number.
double parse_bytes(std::string text) {
  if (text.size() > 1 && (text.back() == 'B' || text.back() == 'b')) text.pop_back();
  const auto bytes = read_count(text);
  if (!bytes || *bytes == 0)
    throw error(errc::invalid_argument, "--memory must be a size such as 3GB or 800MB, found '" + text + "'");
  return static_cast<double>(*bytes);
}

nlohmann::ordered_json candidate_json(const law::candidate& c) {
  nlohmann::ordered_json j{{"name", c.name},
                           {"n_active", c.n_active},
                           {"n_loop", c.n_loop},
                           {"n_total", c.n_total},
                           {"experts", c.experts},
                           {"visits", c.visits},
                           {"tokens", c.tokens},
                           {"loss", c.loss},
                           {"memory_bytes", c.memory_bytes},
                           {"inference_flops_per_token", c.inference_flops}};
  if (!c.rejected.empty()) j["rejected"] = c.rejected;
  return j;
}

std::string short_number(double x, const char* format) {
  char text[40];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::vector<std::string> cells(const law::candidate& c) {
  return {c.name,
          short_number(c.n_active / 1e9, "%.2f"),
          short_number(c.experts, "%.0f"),
          std::to_string(c.visits),
          short_number(c.tokens / 1e9, "%.1f"),
          short_number(c.memory_bytes / 1e9, "%.2f"),
          short_number(c.loss, "%.4f"),
          c.rejected.empty() ? "chosen" : c.rejected};
}

int print_plan(const common_options& common, const plan_options& o) {
  if (o.law != "looped-moe") {
    throw error(errc::unsupported,
                "a plan needs a law of visits and experts: --law must be looped-moe, found '" + o.law + "'");
  }
  const law::looped_law<law::bounded_map<true>> known{law::published::looped_moe(), 1e9};
  const law::selection_limits limits{.flops = o.flops,
                                     .memory_bytes = o.memory.empty() ? law::unbounded : parse_bytes(o.memory),
                                     .bits = o.bits,
                                     .least_gain = o.least_gain};
  const std::vector<law::rung> ladder = law::published_ladder();
  const law::selection s = law::select(known, ladder, o.experts, o.visits, limits);
  if (common.json) {
    nlohmann::ordered_json j{{"law", o.law}, {"flops", o.flops}, {"bits", o.bits}, {"least_gain", o.least_gain}};
    if (!o.memory.empty()) j["memory_bytes"] = limits.memory_bytes;
    j["choice"] = candidate_json(s.choice);
    for (const law::candidate& c : s.candidates) j["candidates"].push_back(candidate_json(c));
    std::cout << j.dump(2) << "\n";
    return exit_fine;
  }
  table t{"", {{"model", false}, {"N_act B"}, {"E"}, {"R"}, {"tokens B"}, {"weights GB"}, {"loss"}, {"", false}}, {}};
  t.rows.push_back(cells(s.choice));
  // of the others, the best of each model and number of experts says why it was not taken
  for (const law::candidate& c : s.candidates)
    if (c.rejected.starts_with("its loss") || (c.visits == 1 && c.rejected.starts_with("weights")))
      t.rows.push_back(cells(c));
  t.notes = {
      "parameters outside of embeddings; training compute 6 N_unroll(R) D; loss in nats a token by the published law"};
  std::cout << to_text(t);
  return exit_fine;
}

}  // namespace

void add_plan(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("plan", "Choose size, experts and visits under compute and memory");
  const auto o = std::make_shared<plan_options>();
  command->add_option("--law", o->law, "The law to plan by (default: looped-moe, as published)")->type_name("NAME");
  command->add_option("--flops", o->flops, "Training compute, such as 5e21")->required()->type_name("X");
  command->add_option("--memory", o->memory, "The most that weights may take, such as 3GB")->type_name("SIZE");
  command->add_option("--bits", o->bits, "Bits a weight (default: 16)")->type_name("X");
  command->add_option("--least-gain", o->least_gain, "Nats that a further visit must gain (default: the law's error)")
      ->type_name("X");
  add_count(*command, "--visits", o->visits, 1, "The most visits to look at (default: 8)", 64);
  command->add_option("--experts", o->experts, "Numbers of experts for each one used")
      ->delimiter(',')
      ->type_name("LIST");
  command->footer("Examples:\n  smelt plan --flops 5e21 --memory 3GB --bits 4\n  smelt plan --flops 1e22 --json");
  command->callback([&, o] { chosen = [&, o] { return print_plan(common, *o); }; });
}

}  // namespace smelt::tool
