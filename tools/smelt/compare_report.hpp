// What does a comparison show? Budgets, losses, curves and how to repeat it: as text, JSON and one HTML file.
#pragma once

#include <nlohmann/json.hpp>
#include <smelt/train/options.hpp>
#include <string>
#include <vector>

#include "budget_report.hpp"
#include "html.hpp"
#include "losses.hpp"
#include "plot.hpp"
#include "run_story.hpp"
#include "table.hpp"

namespace smelt::tool {

/// A finished comparison. The first model is the one that the others are matched with.
struct comparison {
  std::vector<budgets> models;
  std::vector<run_story> stories;     ///< one a model
  std::vector<budget_table> matches;  ///< one a model behind the first
  std::string command_line;
};

namespace detail {

[[nodiscard]] inline double bigram_entropy_in(const run_story& story) {
  const auto& entropy = story.header.at("data").at("bigram_entropy");
  return entropy.is_number() ? entropy.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace detail

/// Final losses of every model.
[[nodiscard]] inline table losses_table(const comparison& c) {
  std::vector<std::pair<std::string, text_losses>> models;
  for (std::size_t i = 0; i < c.models.size(); ++i) models.emplace_back(c.models[i].of.name, c.stories[i].final_losses);
  table t = losses_table(models, detail::bigram_entropy_in(c.stories.front()));
  t.notes.emplace_back("bits/byte: all predicted tokens, over the bytes of text among them");
  return t;
}

/// Balance of the routers and speed.
[[nodiscard]] inline table runs_table(const comparison& c) {
  std::size_t visits = 0;
  for (const run_story& s : c.stories) visits = (std::max)(visits, s.visit_balance.size());
  table t{"Runs", {{"model", false}, {"steps"}, {"tokens/s"}, {"training FLOP/s"}, {"skipped steps"}}, {}};
  for (std::size_t v = 0; v < visits; ++v) t.columns.push_back({"balance, visit " + std::to_string(v + 1)});
  for (std::size_t i = 0; i < c.models.size(); ++i) {
    const run_story& s = c.stories[i];
    t.rows.push_back({c.models[i].of.name, grouped(s.steps), compact(s.tokens_per_second),
                      compact(s.tokens_per_second * static_cast<double>(c.models[i].flops.train_per_token)),
                      grouped(s.skipped)});
    for (const double balance : s.visit_balance) t.rows.back().push_back(fixed(balance, 3));
  }
  t.notes.emplace_back(
      "balance: E sum f P of the looped layers (of all layers without a loop), mean over the last tenth of the steps; "
      "1 is uniform");
  t.notes.emplace_back("tokens/s: training steps alone, without evaluation and saving");
  const nlohmann::json& header = c.stories.front().header;
  t.notes.emplace_back("matrix products: " + header.at("dtype").get<std::string>() + " (" +
                       header.at("instruction_set").get<std::string>() + "), " + header.at("threads").dump() +
                       " threads");
  return t;
}

/// Validation loss against training compute.
[[nodiscard]] inline plot compute_plot(const comparison& c) {
  plot p{.title = "Validation loss against training compute",
         .x_label = "training FLOPs",
         .y_label = "loss, nats/token",
         .log_x = true};
  for (std::size_t i = 0; i < c.models.size(); ++i)
    p.curves.push_back({c.models[i].of.name, c.stories[i].validation_by_flops});
  p.levels.push_back({"bigram entropy", detail::bigram_entropy_in(c.stories.front())});
  return p;
}

/// Training loss against tokens, smoothed.
[[nodiscard]] inline plot tokens_plot(const comparison& c) {
  plot p{.title = "Training loss against tokens (running mean)",
         .x_label = "training tokens",
         .y_label = "loss, nats/token"};
  for (std::size_t i = 0; i < c.models.size(); ++i) {
    const auto& points = c.stories[i].training_by_tokens;
    p.curves.push_back({c.models[i].of.name, smoothed(points, points.size() / 50)});
  }
  p.levels.push_back({"bigram entropy", detail::bigram_entropy_in(c.stories.front())});
  return p;
}

/// What is known before training, for machines: the budgets, and whether they match.
[[nodiscard]] inline nlohmann::ordered_json budgets_json(const comparison& c) {
  nlohmann::ordered_json j;
  j["command"] = c.command_line;
  j["models"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < c.models.size(); ++i) {
    nlohmann::ordered_json model;
    model["name"] = c.models[i].of.name;
    model["budgets"] = to_json(c.models[i]);
    if (i > 0) model["match"] = to_json(c.matches[i - 1]);
    j["models"].push_back(model);
  }
  return j;
}

/// Everything for machines.
[[nodiscard]] inline nlohmann::ordered_json to_json(const comparison& c) {
  const auto points = [](const std::vector<point>& curve) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const point& p : curve) all.push_back({p.x, p.y});
    return all;
  };
  nlohmann::ordered_json j = budgets_json(c);
  for (std::size_t i = 0; i < c.models.size(); ++i) {
    const run_story& s = c.stories[i];
    nlohmann::ordered_json& model = j["models"][i];
    model["validation"] = summary_json(s.final_losses);
    model["validation_loss_by_flops"] = points(s.validation_by_flops);
    model["validation_loss_by_tokens"] = points(s.validation_by_tokens);
    model["visit_balance"] = s.visit_balance;
    model["tokens_per_second"] = s.tokens_per_second;
    model["steps"] = s.steps;
    model["skipped"] = s.skipped;
  }
  const nlohmann::json& header = c.stories.front().header;
  j["bigram_entropy"] = header.at("data").at("bigram_entropy");
  for (const char* name : {"options", "data", "machine", "dtype", "instruction_set", "threads", "version"})
    j[name] = header.at(name);
  return j;
}

/// The report.
[[nodiscard]] inline std::string to_html(const comparison& c) {
  const nlohmann::json& header = c.stories.front().header;
  const nlohmann::json& data = header.at("data");
  std::string names = c.models.front().of.name;
  for (std::size_t i = 1; i < c.models.size(); ++i)
    names += (i + 1 < c.models.size() ? ", " : " and ") + c.models[i].of.name;
  html_document report("smelt compare: " + names);
  const nlohmann::json& options = header.at("options");
  report.paragraph("Trained on the same text (" + data.at("name").get<std::string>() + ", " +
                   grouped(data.at("training_tokens").get<std::int64_t>()) + " training tokens) in the same order, " +
                   grouped(options.at("tokens").get<std::int64_t>()) +
                   " tokens each. Validation text: " + grouped(data.at("validation_tokens").get<std::int64_t>()) +
                   " tokens of documents that no model was trained on.");
  report.heading("Budgets");
  report.add(budgets_table(c.models));
  for (std::size_t i = 0; i < c.matches.size(); ++i)
    report.add(match_table(c.matches[i], c.models[i + 1].of.name, c.models.front().of.name));
  report.heading("Losses");
  report.add(losses_table(c));
  report.add(compute_plot(c));
  report.paragraph("Points on the way are measured on the first " +
                   grouped(header.at("validation_tokens_on_the_way").get<std::int64_t>()) +
                   " validation tokens or a little more; the table has the whole validation text.");
  report.add(tokens_plot(c));
  report.heading("Runs");
  report.add(runs_table(c));
  report.heading("Settings");
  table settings{"", {{"option", false}, {"value", false}}, {}};
  for (const auto& [name, value] : options.items())
    settings.rows.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  settings.rows.push_back({"dtype of matrix products", header.at("dtype").get<std::string>()});
  settings.rows.push_back({"instruction set", header.at("instruction_set").get<std::string>()});
  settings.rows.push_back({"threads", header.at("threads").dump()});
  report.add(settings);
  report.paragraph("Machine: " + header.at("machine").get<std::string>() + "; smelt " +
                   header.at("version").get<std::string>() + ".");
  report.heading("To repeat it");
  report.verbatim((data.at("name").get<std::string>() == "builtin" ? "scripts/corpus small\n" : "") + c.command_line +
                  "\n");
  return report.text();
}

}  // namespace smelt::tool
