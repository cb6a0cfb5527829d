// smelt plan: which size, how many experts and how many visits for a budget of compute and of memory?
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/budget/parameters.hpp>
#include <smelt/law/published.hpp>
#include <smelt/law/selection.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "number.hpp"
#include "saved_fit.hpp"
#include "spec_argument.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct plan_options {
  std::string law = "looped-moe";
  std::string group;
  std::vector<std::string> ladder;
  double flops = 0;
  std::optional<double> memory;  ///< bytes
  double bits = 16;
  std::optional<double> least_gain;
  std::int64_t visits = 8;
  std::vector<double> experts{1, 2, 4, 8, 16, 32, 64};
};

/// Bytes: a count with KB, MB, GB or TB (powers of 1,000), or a plain number.
double parse_bytes(const std::string& text) {
  std::string number = text;
  if (number.size() > 1 && (number.back() == 'B' || number.back() == 'b')) number.pop_back();
  const auto bytes = read_count(number);
  if (!bytes || *bytes == 0)
    throw error(errc::invalid_argument, "--memory must be a size such as 3GB or 800MB, found '" + text + "'");
  return static_cast<double>(*bytes);
}

/// The law that a plan asks: published, or of a fit.
struct planning_law {
  std::string name;
  std::string form;
  std::vector<double> fitted;
  double unit = 1;
  double rmse = 0;
  std::map<std::string, std::pair<double, double>> ranges{};

  [[nodiscard]] double operator()(const law::rung_counts& n, double experts, double visits, double tokens) const {
    return predict_law(form, fitted,
                       {{n.n_active / unit, n.n_loop / unit, n.n_total / unit, experts, visits, tokens / unit}})
        .front();
  }
};

planning_law law_of_argument(const plan_options& o) {
  if (o.law == "looped-moe") {
    const std::vector<law::rung> ladder = law::published_ladder();
    if (!o.group.empty())
      throw error(errc::invalid_argument,
                  "--group is one of a fit; the published law has none, found '" + o.group + "'");
    const auto p = law::published::looped_moe();
    return {"looped-moe, as published",
            "looped-moe",
            {p.begin(), p.end()},
            1e9,
            law::published::looped_moe_error,
            {{"N_act", {law::counts_of(ladder.front(), 1).n_active, law::counts_of(ladder.back(), 1).n_active}}}};
  }
  const auto is_law = std::ranges::find(known_laws(), o.law, &law_description::name) != known_laws().end();
  if (is_law || o.law.find_first_of("./") == std::string::npos) {
    throw error(errc::unsupported,
                "--law must be looped-moe (published coefficients) or a file of smelt fit, found '" + o.law + "'");
  }
  const saved_fit fit = read_fit(o.law);
  if (!fit.law.name.starts_with("looped-moe"))
    throw error(errc::unsupported, "a plan needs a law of visits and experts: a fit of looped-moe, found " +
                                       fit.law.name + " in " + fit.file);
  if (o.group.empty() && fit.groups.size() != 1)
    throw error(errc::invalid_argument,
                fit.file + " has " + std::to_string(fit.groups.size()) + " groups; say which with --group NAME");
  const saved_group& g = o.group.empty() ? fit.groups.front() : fit.group(o.group);
  if (g.ranges.at("N_act").second < 1e6 || g.ranges.at("D").second < 1e6) {
    throw error(errc::invalid_argument, fit.file + ": N_act goes to " + significant(g.ranges.at("N_act").second) +
                                            " and D to " + significant(g.ranges.at("D").second) +
                                            "; a plan needs them in parameters and tokens, so fit with --column "
                                            "N_act=N_act*1e9 and the like");
  }
  return {fit.file, fit.law.name, g.fitted, 1, g.rmse, g.ranges};
}

/// A spec's counts of parameters as a rung: matrices outside of embeddings; without a loop, all but the first and last
/// two layers are taken as one.
law::rung rung_of_spec(const named_spec& s) {
  const parameter_count n = parameters(s.value);
  const double layers = s.value.layers;
  const double width = s.value.width;
  const auto active = static_cast<double>(n.matrices_active);
  const double routed_layers = s.value.layers - s.value.dense_layers;
  const double per_expert =
      static_cast<double>(parameters_of_layer(s.value).expert_matrices) * s.value.experts.active * routed_layers;
  const double looped = n.matrices_loop > 0 ? static_cast<double>(n.matrices_loop) / active : (layers - 4) / layers;
  if (looped <= 0 || per_expert <= 0) {
    throw error(errc::unsupported, s.name + " has " + (looped <= 0 ? "fewer than 5 layers and no loop" : "no experts") +
                                       ": it cannot be planned with visits and experts");
  }
  law::rung r;
  r.name = s.name;
  r.width = width;
  r.layers = layers;
  r.outside = layers * (1 - looped) / 2;
  r.hidden_factor = per_expert / (layers * width * width);
  r.key_value_width = ((active - per_expert) / (layers * width) - 2 * width) / 2;
  return r;
}

std::vector<law::rung> ladder_of(const std::vector<std::string>& names) {
  std::vector<law::rung> published = law::published_ladder();
  if (names.empty()) return published;
  std::vector<law::rung> ladder;
  for (const std::string& name : names) {
    const auto known = std::ranges::find(published, name, &law::rung::name);
    ladder.push_back(known != published.end() ? *known : rung_of_spec(spec_of_argument(name)));
    if (std::ranges::count(ladder, ladder.back().name, &law::rung::name) > 1)
      throw error(errc::invalid_argument, "--ladder has " + ladder.back().name + " twice");
  }
  return ladder;
}

/// Whether a candidate lies outside of the runs that a law was fitted to.
bool beyond_runs(const planning_law& law, const law::candidate& c) {
  const auto out = [&](const char* input, double x) {
    const auto it = law.ranges.find(input);
    return it != law.ranges.end() && (x < it->second.first || x > it->second.second);
  };
  return out("N_act", c.n_active) || out("E", c.experts) || out("R", static_cast<double>(c.visits)) ||
         out("D", c.tokens);
}

nlohmann::ordered_json candidate_json(const planning_law& law, const law::candidate& c) {
  nlohmann::ordered_json j{{"name", c.name},
                           {"n_active", c.n_active},
                           {"n_loop", c.n_loop},
                           {"n_total", c.n_total},
                           {"experts", c.experts},
                           {"visits", c.visits},
                           {"loss", c.loss},
                           {"tokens", c.tokens},
                           {"memory_bytes", c.memory_bytes},
                           {"inference_flops_per_token", c.inference_flops},
                           {"inference_flops_ratio", c.inference_flops / (2 * c.n_active)}};
  j["extrapolated"] = beyond_runs(law, c);
  if (!c.rejected.empty()) j["rejected"] = c.rejected;
  return j;
}

std::vector<std::string> candidate_cells(const planning_law& law, const law::candidate& c) {
  return {c.name,
          compact(c.n_active),
          significant(c.experts),
          std::to_string(c.visits),
          compact(c.tokens),
          compact(c.memory_bytes) + "B",
          fixed(c.inference_flops / (2 * c.n_active), 2),
          fixed(c.loss, 4),
          (c.rejected.empty() ? "chosen" : c.rejected) + (beyond_runs(law, c) ? "; extrapolated" : "")};
}

/// R* of each model and number of experts, and E* of each model and number of visits that fits.
nlohmann::ordered_json best_json(const planning_law& known, const std::vector<law::rung>& ladder, const plan_options& o,
                                 const law::selection_limits& limits) {
  nlohmann::ordered_json j{{"visits", nlohmann::ordered_json::array()}, {"experts", nlohmann::ordered_json::array()}};
  for (const law::rung& model : ladder) {
    for (const double e : o.experts)
      j["visits"].push_back(
          {{"name", model.name}, {"experts", e}, {"visits", law::best_visits(known, model, e, o.visits, limits)}});
    if (law::candidate_at(known, model, o.experts.front(), 1, limits).memory_bytes > limits.memory_bytes) continue;
    for (std::int64_t r = 1; r <= o.visits; ++r)
      j["experts"].push_back(
          {{"name", model.name}, {"visits", r}, {"experts", law::best_experts(known, model, r, o.experts, limits)}});
  }
  return j;
}

/// A row a model; a column for each value of `across`.
table best_table(const nlohmann::ordered_json& rows, const std::string& caption, const char* across, const char* shown,
                 const std::string& letter) {
  table t{caption, {{"model", false}}, {}};
  for (const auto& r : rows) {
    const std::string name = r["name"].get<std::string>();
    if (t.rows.empty() || t.rows.back().front() != name) t.rows.push_back({name});
    t.rows.back().push_back(significant(r[shown].get<double>()));
    if (t.rows.size() == 1) t.columns.push_back({letter + " = " + significant(r[across].get<double>())});
  }
  return t;
}

int print_plan(const common_options& common, plan_options o) {
  const planning_law known = law_of_argument(o);
  const law::selection_limits limits{.flops = o.flops,
                                     .memory_bytes = o.memory.value_or(law::unbounded),
                                     .bits = o.bits,
                                     .least_gain = o.least_gain.value_or(known.rmse)};
  std::ranges::sort(o.experts);
  o.experts.erase(std::unique(o.experts.begin(), o.experts.end()), o.experts.end());
  for (const double e : o.experts)
    if (!(e >= 1 && e <= 1e6))
      throw error(errc::invalid_argument,
                  "--experts must be numbers from 1 to 1000000, found " + law::detail::shown(e));
  const std::vector<law::rung> ladder = ladder_of(o.ladder);
  const law::selection s = law::select(known, ladder, o.experts, o.visits, limits);
  const nlohmann::ordered_json best = best_json(known, ladder, o, limits);
  if (common.json) {
    nlohmann::ordered_json j{{"law", known.name},
                             {"form", law_called(known.form).name},
                             {"flops", o.flops},
                             {"bits", o.bits},
                             {"least_gain", limits.least_gain}};
    j["memory_bytes"] = o.memory ? nlohmann::ordered_json(*o.memory) : nlohmann::ordered_json(nullptr);
    j["choice"] = candidate_json(known, s.choice);
    j["best_visits"] = best["visits"];
    j["best_experts"] = best["experts"];
    for (const law::candidate& c : s.candidates) j["candidates"].push_back(candidate_json(known, c));
    std::cout << j.dump(2) << "\n";
    return exit_fine;
  }
  table t{"",
          {{"model", false}, {"N_act"}, {"E"}, {"R"}, {"tokens"}, {"weights"}, {"inference"}, {"loss"}, {"", false}},
          {}};
  t.rows.push_back(candidate_cells(known, s.choice));
  // of the others, the best of each model and number of experts says why it was not taken
  for (const law::candidate& c : s.candidates)
    if (c.why == law::rejection::loss || (c.visits == 1 && c.why == law::rejection::memory))
      t.rows.push_back(candidate_cells(known, c));
  t.notes = {
      "law: " + known.name + "; a visit must gain " + significant(limits.least_gain, 3) + " nats" +
          (o.least_gain ? "" : ", the law's error"),
      "parameters and weights: those outside of embeddings; training compute 6 N_unroll(R) D; loss in nats a token",
      "inference: FLOPs a token, in those of the same model visited once"};
  std::cout << to_text(t) << "\n"
            << to_text(best_table(best["visits"], "Visits worth taking, R*", "experts", "visits", "E"));
  if (!best["experts"].empty())
    std::cout << "\n"
              << to_text(best_table(best["experts"], "Experts worth storing, E*, of those that fit in memory", "visits",
                                    "experts", "R"));
  return exit_fine;
}

}  // namespace

void add_plan(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("plan", "Choose size, experts and visits under compute and memory");
  const auto o = std::make_shared<plan_options>();
  command
      ->add_option("--law", o->law, "looped-moe as published (default), or a fit.json of smelt fit --form looped-moe")
      ->type_name("NAME");
  command->add_option("--group", o->group, "The group of the fit, where it has several")->type_name("NAME");
  command
      ->add_option("--ladder", o->ladder,
                   "Models to choose from: SPECs, or 0.3B, 0.6B, 1.0B, 1.6B, 2.4B of the published ladder (default: "
                   "all of those)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->add_option("--flops", o->flops, "Training compute, such as 5e21")->required()->type_name("X");
  command
      ->add_option_function<std::string>(
          "--memory", [o](const std::string& text) { o->memory = parse_bytes(text); },
          "The most that weights outside of embeddings may take, such as 3GB")
      ->type_name("SIZE");
  command->add_option("--bits", o->bits, "Bits a weight (default: 16)")->type_name("X");
  command->add_option("--least-gain", o->least_gain, "Nats that a further visit must gain (default: the law's error)")
      ->type_name("X");
  add_count(*command, "--visits", o->visits, 1, "The most visits to look at (default: 8)", 64);
  command->add_option("--experts", o->experts, "Numbers of experts for each one used (default: 1,2,4,...,64)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command->footer(
      "Examples:\n  smelt plan --flops 5e21 --memory 3GB --bits 4\n"
      "  smelt plan --law fits/fit.json --ladder small-r4,mine.json --flops 1e21 --memory 800MB --bits 4\n"
      "  smelt plan --flops 1.5e22 --ladder 0.3B --experts 8 --json");
  command->callback([&, o] { chosen = [&, o] { return print_plan(common, *o); }; });
}

}  // namespace smelt::tool
