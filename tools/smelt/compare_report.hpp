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
#include "training_run.hpp"

namespace smelt::tool {

/// A finished comparison. The first model is the one that the others are matched with.
struct comparison {
  std::vector<budgets> models;
  std::vector<run_story> stories;     ///< one a model
  std::vector<visit_findings> found;  ///< one a model
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

namespace detail {

/// Calls f(model, visit) for every learned coefficient of every model, both as numbers from 0.
template <class F>
void each_learned(const comparison& c, F&& f) {
  for (std::size_t i = 0; i < c.models.size(); ++i) {
    const spec& s = c.models[i].of.value;
    if (span_of(s).count == 0) continue;
    for (std::size_t v = 0; v < c.stories[i].coefficients_by_tokens.size(); ++v)
      if (s.loop.visits[static_cast<int>(v)].learned && !c.stories[i].coefficients_by_tokens[v].empty()) f(i, v);
  }
}

}  // namespace detail

/// Learned coefficients of residual writes against tokens; without curves when none is learned.
[[nodiscard]] inline plot coefficients_plot(const comparison& c) {
  plot p{.title = "Learned coefficients against tokens", .x_label = "training tokens", .y_label = "coefficient"};
  detail::each_learned(c, [&](std::size_t i, std::size_t v) {
    p.curves.push_back(
        {c.models[i].of.name + ", visit " + std::to_string(v + 1), c.stories[i].coefficients_by_tokens[v]});
  });
  return p;
}

/// What coefficients were learned; without rows when none is.
[[nodiscard]] inline table coefficients_table(const comparison& c) {
  table t{"Learned coefficients", {{"model", false}, {"visit"}, {"first step"}, {"last step"}}, {}};
  detail::each_learned(c, [&](std::size_t i, std::size_t v) {
    const std::vector<point>& curve = c.stories[i].coefficients_by_tokens[v];
    t.rows.push_back({c.models[i].of.name, std::to_string(v + 1), fixed(curve.front().y, 4), fixed(curve.back().y, 4)});
  });
  t.notes.emplace_back("coefficient: what the residual writes of a visit are scaled by");
  return t;
}

/// Channel means of the writebacks of compressed visits at the end of training; without rows when there is none.
[[nodiscard]] inline table writebacks_table(const comparison& c) {
  std::size_t receivers = 0;
  for (const visit_findings& f : c.found)
    for (const auto& w : f.writebacks) receivers = (std::max)(receivers, w.means.size());
  table t{"Writeback, mean over channels", {{"model", false}, {"visit"}}, {}};
  for (std::size_t r = 0; r < receivers; ++r)
    t.columns.push_back({"receiver " + std::to_string(r + 1) +
                         (r == 0               ? " (near)"
                          : r + 1 == receivers ? " (far)"
                                               : "")});
  for (std::size_t i = 0; i < c.models.size(); ++i)
    for (const auto& w : c.found[i].writebacks) {
      t.rows.push_back({c.models[i].of.name, std::to_string(w.visit + 1)});
      for (const double mean : w.means) t.rows.back().push_back(fixed(mean, 4));
    }
  t.notes.emplace_back(
      "what a latent's increment is multiplied by for each token that receives it, at the end of training: receiver 1 "
      "is the last token of the latent's own chunk, the others follow it; training starts at 1");
  return t;
}

/// Experts that consecutive visits share at the end of training; without rows when no model is visited twice.
[[nodiscard]] inline table overlaps_table(const comparison& c) {
  table t{"Experts that consecutive visits share",
          {{"model", false}, {"layer"}, {"visits"}, {"tokens"}, {"share"}, {"by chance"}},
          {}};
  for (std::size_t i = 0; i < c.models.size(); ++i)
    for (const expert_overlap& o : c.found[i].overlaps)
      t.rows.push_back({c.models[i].of.name, std::to_string(o.layer),
                        std::to_string(o.visit + 1) + " and " + std::to_string(o.visit + 2), grouped(o.tokens),
                        o.tokens > 0 ? fixed(o.share(), 3) : "n/a", fixed(o.chance, 3)});
  t.notes.emplace_back(
      "share: mean over validation tokens of the experts that both visits choose, over as many as both could; by "
      "chance: of independent uniform choices");
  t.notes.emplace_back("in a compressed visit, a token's experts are those of the latent whose chunk holds it");
  return t;
}

/// What there is to say about visits: the tables above that have rows.
[[nodiscard]] inline std::vector<table> visit_tables(const comparison& c) {
  std::vector<table> all{coefficients_table(c), writebacks_table(c), overlaps_table(c)};
  std::erase_if(all, [](const table& t) { return t.rows.empty(); });
  return all;
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
    model["learned_coefficients"] = nlohmann::ordered_json::array();
    model["writeback_means"] = nlohmann::ordered_json::array();
    for (const auto& w : c.found[i].writebacks)
      model["writeback_means"].push_back({{"visit", w.visit}, {"means", w.means}});
    model["expert_overlap"] = nlohmann::ordered_json::array();
    for (const expert_overlap& o : c.found[i].overlaps)
      model["expert_overlap"].push_back({{"layer", o.layer},
                                         {"visits", {o.visit, o.visit + 1}},
                                         {"tokens", o.tokens},
                                         {"share", o.tokens > 0 ? nlohmann::ordered_json(o.share()) : nullptr},
                                         {"chance", o.chance}});
    model["tokens_per_second"] = s.tokens_per_second;
    model["steps"] = s.steps;
    model["skipped"] = s.skipped;
  }
  detail::each_learned(c, [&](std::size_t i, std::size_t v) {
    const std::vector<point>& curve = c.stories[i].coefficients_by_tokens[v];
    j["models"][i]["learned_coefficients"].push_back({{"visit", v},
                                                      {"first_step", curve.front().y},
                                                      {"last_step", curve.back().y},
                                                      {"by_tokens", points(thinned(curve, 200))}});
  });
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
  if (const std::vector<table> tables = visit_tables(c); !tables.empty()) {
    report.heading("Visits");
    if (const plot p = coefficients_plot(c); !p.curves.empty()) report.add(p);
    for (const table& t : tables) report.add(t);
  }
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
