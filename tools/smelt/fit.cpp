// smelt fit: which law do these runs follow?
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/law/intervals.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "csv_table.hpp"
#include "law_fit.hpp"
#include "number.hpp"
#include "plot.hpp"
#include "table.hpp"

namespace smelt::tool {

namespace {

struct fit_command_options {
  std::string data;
  std::string form = "smelt";
  std::string group;
  std::vector<std::string> where;
  std::vector<std::string> columns;
  std::vector<std::string> hold;
  std::vector<std::string> cells;
  std::string response;
  std::string loss = "huber";
  double delta = 1e-3;
  std::int64_t starts = 0;
  std::string bootstrap;
  double level = 0.95;
  std::string out;
};

/// NAME=VALUE in two.
std::pair<std::string, std::string> pair_of(const std::string& text, const std::string& option) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw error(errc::invalid_argument, option + " must be NAME=VALUE, found '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

double number_of(const std::string& text, const std::string& what) {
  try {
    std::size_t end = 0;
    const double value = std::stod(text, &end);
    if (end == text.size()) return value;
  } catch (const std::exception&) {  // reported below
  }
  throw error(errc::invalid_argument, what + " must be a number, found '" + text + "'");
}

/// The column of an input: as given with --column, by its own name, or by one of the usual other names.
std::size_t column_for(const csv_table& table, const std::map<std::string, std::string>& given,
                       const std::string& wanted) {
  if (const auto it = given.find(wanted); it != given.end()) return table.column(it->second);
  static const std::map<std::string, std::vector<std::string>> usual{
      {"N", {"params", "parameters", "n_params", "N_act"}},
      {"D", {"tokens", "n_tokens"}},
      {"S", {"sparsity"}},
      {"F", {"flops_per_token"}},
      {"R", {"visits", "r"}},
      {"r", {"visits", "R"}},
      {"E", {"experts", "expansion"}},
      {"N_act", {"n_active", "N"}},
      {"N_loop", {"n_loop"}},
      {"N_total", {"n_total"}},
      {"loss", {"val_loss", "L"}},
      {"score", {"accuracy", "y"}}};
  if (!table.has(wanted)) {
    if (const auto it = usual.find(wanted); it != usual.end())
      for (const std::string& other : it->second)
        if (table.has(other)) return table.column(other);
  }
  return table.column(wanted);
}

/// Does the row satisfy a filter such as S>0.5, arch=smelt or split!=test?
bool satisfies(const csv_table& table, std::size_t row, const std::string& filter) {
  for (const std::string op : {"<=", ">=", "!=", "==", "<", ">", "="}) {
    const auto at = filter.find(op);
    if (at == std::string::npos || at == 0) continue;
    const std::size_t column = table.column(filter.substr(0, at));
    const std::string value = filter.substr(at + op.size());
    if (op == "=" || op == "==" || op == "!=") {
      const bool equal = table.rows[row][column] == value;
      return op == "!=" ? !equal : equal;
    }
    const double x = table.number(row, column);
    const double bound = number_of(value, "the bound of --where " + filter);
    return op == "<" ? x < bound : op == ">" ? x > bound : op == "<=" ? x <= bound : x >= bound;
  }
  throw error(errc::invalid_argument, "--where must compare a column, such as S>0.5, found '" + filter + "'");
}

/// rows:2000, cells:2000 or leave-out:0.1:2000.
struct bootstrap_request {
  std::string unit;
  double fraction = 0;
  std::int64_t draws = 0;
};

bootstrap_request parse_bootstrap(const std::string& text) {
  bootstrap_request r;
  const auto first = text.find(':');
  r.unit = text.substr(0, first);
  const auto last = text.rfind(':');
  const bool known = r.unit == "rows" || r.unit == "cells" || r.unit == "leave-out";
  if (!known || first == std::string::npos || (r.unit == "leave-out") != (last != first)) {
    throw error(errc::invalid_argument,
                "--bootstrap must be rows:DRAWS, cells:DRAWS or leave-out:FRACTION:DRAWS, found '" + text + "'");
  }
  if (r.unit == "leave-out")
    r.fraction = number_of(text.substr(first + 1, last - first - 1), "the fraction of --bootstrap");
  r.draws = parse_count(text.substr(last + 1), "the draws of --bootstrap", 1, 10'000'000);
  return r;
}

std::string state_name(law::coefficient_state s) {
  switch (s) {
    case law::coefficient_state::inside:
      return "";
    case law::coefficient_state::at_least:
    case law::coefficient_state::at_most:
      return "at bound";
    case law::coefficient_state::held:
      return "held";
  }
  return "";
}

std::string significant(double x, int count = 6) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", count, x);
  return text;
}

/// The rows of one group.
struct group_rows {
  std::vector<std::vector<double>> inputs;
  std::vector<double> responses;
  std::vector<std::size_t> units;
  std::size_t unit_count = 0;
};

nlohmann::ordered_json fit_json(const law_fit_outcome& outcome, double level) {
  const law::fit_result& r = outcome.fit;
  nlohmann::ordered_json j;
  for (std::size_t i = 0; i < r.names.size(); ++i) {
    nlohmann::ordered_json c{{"name", r.names[i]}, {"value", r.values[i]}, {"fitted", r.fitted[i]}};
    if (const std::string state = state_name(r.states[i]); !state.empty()) c["state"] = state;
    if (!outcome.resampled.empty()) {
      std::vector<double> values;
      const bool logarithmic = r.values[i] != r.fitted[i];
      for (const auto& p : outcome.resampled)
        values.push_back(p.empty() ? std::nan("") : logarithmic ? std::exp(p[i]) : p[i]);
      const law::interval of = law::percentile_interval(values, level);
      c["interval"] = {of.low, of.high};
      c["standard_error"] = of.deviation;
    }
    j["coefficients"].push_back(std::move(c));
  }
  j["objective"] = r.objective;
  j["gradient"] = r.gradient;
  j["rmse_log"] = r.rmse_log;
  j["rmse"] = r.rmse;
  j["r_squared"] = r.r_squared;
  if (std::isfinite(r.condition)) j["condition"] = r.condition;
  j["rows"] = r.rows;
  j["starts"] = r.starts;
  j["agreeing"] = r.agreeing;
  if (r.next_best) j["next_best"] = {{"objective", r.next_best->objective}, {"values", r.next_best->values}};
  j["warnings"] = r.warnings;
  if (!outcome.resampled.empty()) {
    std::size_t failed = 0;
    for (const auto& p : outcome.resampled) failed += p.empty() ? 1u : 0u;
    j["bootstrap"] = {{"draws", outcome.resampled.size()}, {"failed", failed}, {"fitted", outcome.resampled}};
  }
  return j;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw error(errc::io, "cannot write '" + path.string() + "'");
}

int run_fit(const common_options& common, const fit_command_options& o) {
  const csv_table data = read_csv(o.data);
  const law_columns wanted = columns_of_law(o.form);
  std::map<std::string, std::string> given;
  for (const std::string& c : o.columns) given.insert(pair_of(c, "--column"));
  std::vector<std::size_t> columns;
  for (const std::string& name : wanted.inputs) columns.push_back(column_for(data, given, name));
  const std::size_t response =
      o.response.empty() ? column_for(data, given, wanted.losses ? "loss" : "score") : data.column(o.response);

  law::fit_options options;
  options.delta = o.delta;
  options.random_starts = o.starts;
  options.seed = static_cast<std::uint64_t>(common.seed);
  options.threads = static_cast<std::size_t>(common.threads);
  if (o.loss == "lad") {
    options.loss = law::residual_loss::least_absolute;
  } else if (o.loss == "squares") {
    options.loss = law::residual_loss::least_squares;
  } else if (o.loss != "huber") {
    throw error(errc::invalid_argument, "--loss must be huber, lad or squares, found '" + o.loss + "'");
  }
  for (const std::string& h : o.hold) {
    const auto [name, value] = pair_of(h, "--hold");
    options.hold.emplace_back(name, number_of(value, "--hold " + name));
  }
  std::optional<bootstrap_request> boot;
  if (!o.bootstrap.empty()) boot = parse_bootstrap(o.bootstrap);
  if (boot && boot->unit == "cells" && o.cells.empty())
    throw error(errc::invalid_argument, "--bootstrap cells needs the columns that make a cell; add --cell SIZE,S");

  // cells are numbered over all groups, so that the same draw means the same cells in each
  std::map<std::vector<std::string>, std::size_t> cell_numbers;
  std::map<std::string, group_rows> groups;
  const std::optional<std::size_t> group_column = o.group.empty() ? std::nullopt : std::optional(data.column(o.group));
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    if (!std::ranges::all_of(o.where, [&](const std::string& filter) { return satisfies(data, i, filter); })) continue;
    group_rows& g = groups[group_column ? data.rows[i][*group_column] : "all"];
    std::vector<double> x;
    for (const std::size_t c : columns) x.push_back(data.number(i, c));
    g.inputs.push_back(std::move(x));
    g.responses.push_back(data.number(i, response));
    std::vector<std::string> cell;
    for (const std::string& c : o.cells) cell.push_back(data.rows[i][data.column(c)]);
    g.units.push_back(cell_numbers.emplace(cell, cell_numbers.size()).first->second);
  }
  if (groups.empty()) throw error(errc::invalid_argument, "no row of " + o.data + " passes --where");

  nlohmann::ordered_json document{{"format", "smelt-fit-1"},
                                  {"form", o.form},
                                  {"conventions",
                                   {{"residual", wanted.losses ? "ln loss" : "score"},
                                    {"loss", o.loss},
                                    {"delta", o.loss == "huber" ? nlohmann::ordered_json(o.delta) : nullptr},
                                    {"objective", "sum"},
                                    {"hold", o.hold}}},
                                  {"provenance",
                                   {{"command", common.command_line},
                                    {"data", o.data},
                                    {"where", o.where},
                                    {"columns", nlohmann::ordered_json::object()},
                                    {"version", SMELT_VERSION}}}};
  for (std::size_t j = 0; j < columns.size(); ++j)
    document["provenance"]["columns"][wanted.inputs[j]] = data.columns[columns[j]];
  document["provenance"]["columns"][wanted.losses ? "loss" : "score"] = data.columns[response];
  if (boot)
    document["bootstrap"] = {{"scheme", o.bootstrap}, {"seed", common.seed}, {"cell", o.cells}, {"level", o.level}};

  std::string text;
  plot residuals{"Residuals", "row", wanted.losses ? "ln predicted - ln observed" : "predicted - observed"};
  residuals.levels.push_back({"0", 0});
  for (auto& [name, g] : groups) {
    std::optional<law::resampling> draws;
    std::vector<std::size_t> units;
    if (boot) {
      const auto seed = static_cast<std::uint64_t>(common.seed);
      const auto count = static_cast<std::size_t>(boot->draws);
      const bool by_cell = boot->unit == "cells" || (boot->unit == "leave-out" && !o.cells.empty());
      if (by_cell) units = g.units;
      const std::size_t unit_count = by_cell ? cell_numbers.size() : g.inputs.size();
      draws = boot->unit == "leave-out" ? law::draw_leaving_out(unit_count, boot->fraction, count, seed)
                                        : law::draw_with_replacement(unit_count, count, seed);
    }
    const law_fit_outcome outcome = fit_law(o.form, g.inputs, g.responses, options, draws, units);
    nlohmann::ordered_json j = fit_json(outcome, o.level);
    if (o.form == "smelt" || o.form == "chinchilla") {
      double least = law::unbounded;
      double most = 0;
      for (const auto& x : g.inputs) {
        const double compute = o.form == "smelt" ? x[0] * x[2] : 6 * x[0] * x[1];
        least = (std::min)(least, compute);
        most = (std::max)(most, compute);
      }
      j["compute_window"] = {least, most};
    }
    document["groups"][name] = j;

    table t{name, {{"coefficient", false}, {"value"}, {"low"}, {"high"}, {"", false}}, {}};
    for (const auto& c : j["coefficients"]) {
      const bool interval = c.contains("interval");
      t.rows.push_back({c["name"].get<std::string>(), significant(c["value"].get<double>(), 8),
                        interval ? significant(c["interval"][0].get<double>()) : "",
                        interval ? significant(c["interval"][1].get<double>()) : "", c.value("state", "")});
    }
    const law::fit_result& r = outcome.fit;
    t.notes.push_back("objective " + significant(r.objective, 10) + ", RMSE " + significant(r.rmse, 4) + ", R^2 " +
                      significant(r.r_squared, 6) + ", " + std::to_string(r.agreeing) + " of " +
                      std::to_string(r.starts) + " starts agree, " + std::to_string(r.rows) + " rows");
    for (const std::string& w : r.warnings) t.notes.push_back("warning: " + w);
    text += to_text(t) + "\n";

    series s{name, {}};
    for (std::size_t i = 0; i < g.responses.size(); ++i) {
      s.points.push_back({static_cast<double>(i), wanted.losses ? std::log(outcome.predictions[i] / g.responses[i])
                                                                : outcome.predictions[i] - g.responses[i]});
    }
    residuals.curves.push_back(std::move(s));
  }

  if (!o.out.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(o.out, failure);
    if (failure) throw error(errc::io, "cannot make the folder '" + o.out + "': " + failure.message());
    write_text(std::filesystem::path(o.out) / "fit.json", document.dump(2) + "\n");
    write_text(std::filesystem::path(o.out) / "residuals.svg", to_svg(residuals));
  }
  std::cout << (common.json ? document.dump(2) + "\n" : text);
  return exit_fine;
}

}  // namespace

void add_fit(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("fit", "Fit a scaling law to a table of runs");
  const auto o = std::make_shared<fit_command_options>();
  command->add_option("DATA", o->data, "A CSV file with a line of column names")->required()->type_name("");
  command->add_option("--form", o->form, "The law (default: smelt; see smelt law list)")->type_name("NAME");
  command->add_option("--group", o->group, "Fit each value of this column on its own")->type_name("COLUMN");
  command->add_option("--where", o->where, "Only rows such as S>0.5 or arch=smelt; all of several must hold")
      ->type_name("TEST")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--column", o->columns, "The column of an input, such as N='Model Size'")
      ->type_name("INPUT=COLUMN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--response", o->response, "The column that is fitted (default: loss, or score)")
      ->type_name("COLUMN");
  command->add_option("--loss", o->loss, "huber (default), lad or squares")->type_name("NAME");
  command->add_option("--delta", o->delta, "Of Huber's loss, in ln loss (default: 1e-3)")->type_name("X");
  command->add_option("--hold", o->hold, "A coefficient that is not fitted, such as E_max=256")
      ->type_name("NAME=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_count(*command, "--starts", o->starts, 1, "Random starts in place of the law's grid");
  command->add_option("--bootstrap", o->bootstrap, "rows:2000, cells:2000 or leave-out:0.1:2000")->type_name("SCHEME");
  command->add_option("--cell", o->cells, "The columns that make a cell, such as size,S")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--level", o->level, "What intervals hold (default: 0.95)")->type_name("X");
  command->add_option("--out", o->out, "A folder for fit.json and residuals.svg")->type_name("DIR");
  command->footer(
      "Examples:\n  smelt fit runs.csv --form smelt --group arch --where 'S>0.5' --bootstrap cells:2000 --cell size,S "
      "--out fits\n"
      "  smelt fit runs.csv --form chinchilla --column N='Model Size' --json");
  command->callback([&, o] { chosen = [&, o] { return run_fit(common, *o); }; });
}

}  // namespace smelt::tool
