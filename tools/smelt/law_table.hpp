// Which rows and columns of a table of runs does a law get? Inputs by their usual names or as formulas over columns;
// rows by tests, in groups; what is left out is counted, with the reason.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csv_table.hpp"
#include "law_fit.hpp"
#include "row_formula.hpp"

namespace smelt::tool {

/// NAME=VALUE in two. Throws invalid_argument, naming the option.
[[nodiscard]] inline std::pair<std::string, std::string> split_pair(const std::string& text,
                                                                    const std::string& option) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw error(errc::invalid_argument, option + " must be NAME=VALUE, found '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

namespace detail {

/// Lower-case letters and digits alone: "Model Size", model_size and modelSize are one name.
[[nodiscard]] inline std::string bare_name(const std::string& name) {
  std::string bare;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      bare += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return bare;
}

/// Other names, bare, that an input's column often has.
[[nodiscard]] inline const std::vector<std::string>& usual_names(const std::string& input) {
  static const std::map<std::string, std::vector<std::string>> usual{
      {"N", {"params", "parameters", "nparams", "numparams", "modelsize", "nactive", "nact"}},
      {"D", {"tokens", "ntokens", "numtokens", "trainingtokens", "traintokens"}},
      {"C", {"flops", "trainingflops", "trainingflop", "trainflops", "compute"}},
      {"S", {"sparsity"}},
      {"F", {"flopspertoken", "flopstoken", "trainingflopspertoken"}},
      {"R", {"visits", "recurrences", "loops", "nvisits"}},
      {"r", {"visits", "recurrences", "loops", "nvisits"}},
      {"E", {"experts", "expansion", "nexperts", "numexperts"}},
      {"N_act", {"n", "nactive", "activeparams", "activeparameters"}},
      {"N_loop", {"nloop", "loopparams"}},
      {"N_total", {"ntotal", "totalparams", "totalparameters"}},
      {"N_once", {"nonce"}},
      {"N_rec", {"nrec", "nrecurrent"}},
      {"loss", {"valloss", "validationloss", "evalloss", "testloss"}},
      {"score", {"accuracy", "acc", "metricvalue"}}};
  static const std::vector<std::string> none;
  const auto it = usual.find(input);
  return it == usual.end() ? none : it->second;
}

}  // namespace detail

/// Where an input's numbers come from.
struct table_source {
  std::string text;  ///< a column, or a formula
  std::optional<std::size_t> column{};

  [[nodiscard]] double value(const csv_table& table, std::size_t row) const {
    return column ? table.number(row, *column) : detail::row_formula(table, row, text).value();
  }
};

/// A column by its name, or a formula. Throws invalid_argument for neither.
[[nodiscard]] inline table_source source_of(const csv_table& table, const std::string& text) {
  if (table.has(text)) return {text, table.column(text)};
  table_source s{text};
  static_cast<void>(s.value(table, 0));  // names what is wrong with the formula
  return s;
}

/// The column called `wanted`, or the one that has another usual name of it. Nothing when there is none; throws
/// invalid_argument when there are several.
[[nodiscard]] inline std::optional<table_source> usual_source(const csv_table& table, const std::string& wanted) {
  if (table.has(wanted)) return table_source{wanted, table.column(wanted)};
  std::optional<table_source> found;
  const std::vector<std::string>& others = detail::usual_names(wanted);
  for (std::size_t j = 0; j < table.columns.size(); ++j) {
    if (std::ranges::find(others, detail::bare_name(table.columns[j])) == others.end()) continue;
    if (found) {
      throw error(errc::invalid_argument, table.name + ": " + wanted + " could be '" + found->text + "' or '" +
                                              table.columns[j] + "'; say which with --column " + wanted + "=NAME");
    }
    found = table_source{table.columns[j], j};
  }
  return found;
}

/// Where an input of a law comes from: as `given` (INPUT, COLUMN or formula), else by its usual names, else D as
/// C / (6 N) or F as C / D. Throws invalid_argument, naming the input, when there is nothing.
[[nodiscard]] inline table_source source_for(const csv_table& table, const std::map<std::string, std::string>& given,
                                             const std::string& wanted) {
  if (const auto it = given.find(wanted); it != given.end()) return source_of(table, it->second);
  if (const auto usual = usual_source(table, wanted)) return *usual;
  if (wanted == "D" || wanted == "F") {
    const std::string other = wanted == "D" ? "N" : "D";
    const auto part =
        given.contains(other) ? std::optional(source_of(table, given.at(other))) : usual_source(table, other);
    const auto compute =
        given.contains("C") ? std::optional(source_of(table, given.at("C"))) : usual_source(table, "C");
    const auto quoted = [](const table_source& s) { return s.column ? "\"" + s.text + "\"" : "(" + s.text + ")"; };
    if (part && compute)
      return source_of(table, quoted(*compute) + (wanted == "D" ? "/(6*" + quoted(*part) + ")" : "/" + quoted(*part)));
  }
  try {
    return {wanted, table.column(wanted)};
  } catch (const error& e) {
    throw error(e.code(), std::string(e.what()) + " Say where it is with --column " + wanted + "=COLUMN");
  }
}

/// A test of rows, such as S>0.5, arch=smelt or split!=test.
struct row_test {
  std::string text;
  std::size_t column = 0;
  std::string op;
  std::string value;

  [[nodiscard]] bool holds(const csv_table& table, std::size_t row) const {
    if (op == "=" || op == "!=") {
      const std::string& cell = table.rows[row][column];
      const double a = number_in(cell);
      const double b = number_in(value);
      const bool equal = cell == value || a == b;  // 1 is 1.0
      return equal == (op == "=");
    }
    const double x = table.number(row, column);
    const double bound = number_in(value);
    return op == "<" ? x < bound : op == ">" ? x > bound : op == "<=" ? x <= bound : x >= bound;
  }
};

/// Reads a test; its column may be an input of the law by another name. Throws invalid_argument, naming the option.
[[nodiscard]] inline row_test test_of(const csv_table& table, const std::string& text, const std::string& option) {
  const auto at = text.find_first_of("<>=!");
  row_test t{text, 0, "", ""};
  if (at != std::string::npos && at != 0) {
    const bool two = at + 1 < text.size() && text[at + 1] == '=';
    t.op = text.substr(at, two ? 2 : 1);
    if (t.op == "==") t.op = "=";
    t.value = text.substr(at + (two ? 2 : 1));
  }
  if (t.op.empty() || t.op == "!")
    throw error(errc::invalid_argument, option + " must compare a column, such as S>0.5, found '" + text + "'");
  std::string name = text.substr(0, at);
  const auto trim = [](std::string& s) {
    s.erase(0, s.find_first_not_of(' '));
    s.erase(s.find_last_not_of(' ') + 1);
  };
  trim(name);
  trim(t.value);
  const auto usual = usual_source(table, name);
  t.column = usual ? *usual->column : table.column(name);
  if (t.op != "=" && t.op != "!=" && std::isnan(number_in(t.value))) {
    throw error(errc::invalid_argument,
                "the bound of " + option + " " + text + " must be a number, found '" + t.value + "'");
  }
  return t;
}

/// How rows are chosen.
struct row_choice {
  std::vector<std::string> where{};
  std::vector<std::string> columns{};  ///< INPUT=COLUMN
  std::string response{};
  std::string group{};
  std::vector<std::string> cells{};  ///< the columns that make a cell
  bool cells_by_inputs = false;      ///< a cell is what differs in D alone
  std::vector<std::string> hold_out{};
  bool drop_incomplete = false;
};

/// The rows of one group.
struct run_group {
  law_rows rows;
  law_rows held_out;
  std::vector<std::size_t> units;       ///< the cell of each row, numbered alike in all groups
  std::vector<std::size_t> table_rows;  ///< of the table, for each row
};

/// What was chosen.
struct chosen_runs {
  std::vector<table_source> sources;  ///< of the law's inputs, then of its response
  std::map<std::string, run_group> groups;
  std::size_t cell_count = 0;
  std::size_t read = 0;
  std::size_t used = 0;
  std::size_t held_out = 0;
  std::vector<std::pair<std::string, std::size_t>> left_out;  ///< reason and rows
};

namespace detail {

/// The order of cells: numbers by value, then words.
[[nodiscard]] inline bool cell_before(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (std::size_t j = 0; j < a.size(); ++j) {
    const double x = number_in(a[j]);
    const double y = number_in(b[j]);
    if (!std::isnan(x) && !std::isnan(y) && x != y) return x < y;
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (a[j] != b[j]) return a[j] < b[j];
  }
  return false;
}

/// Numbers cells by all inputs but D. Values within 2 % (0.005 for parts of 1) of the least of them are one: sizes of
/// two architectures that are meant to be alike differ by that. Throws invalid_argument for a law that has no D.
inline void number_cells_by_inputs(chosen_runs& chosen, const law_description& law) {
  const bool tokens = std::ranges::any_of(law.inputs, [](const law::input& x) { return x.name == "D"; });
  if (!tokens || law.inputs.size() < 2)
    throw error(errc::invalid_argument,
                "--bootstrap cells needs the columns that make a cell of " + law.name + "; add --cell SIZE,S");
  std::map<std::string, std::vector<std::vector<double>>> keys;  // a group's rows, by the least of each level
  for (const auto& [name, g] : chosen.groups) keys[name].resize(g.rows.inputs.size());
  for (std::size_t j = 0; j < law.inputs.size(); ++j) {
    if (law.inputs[j].name == "D") continue;
    std::vector<double> values;
    for (const auto& [name, g] : chosen.groups)
      for (const auto& x : g.rows.inputs) values.push_back(x[j]);
    std::ranges::sort(values);
    std::vector<double> levels;
    const bool part = law.inputs[j].where == law::domain::zero_to_one;
    for (const double v : values)
      if (levels.empty() ||
          v > (part ? (std::min)(levels.back() + 0.008, 1 - (1 - levels.back()) / 1.25) : levels.back() * 1.02))
        levels.push_back(v);
    for (const auto& [name, g] : chosen.groups)
      for (std::size_t i = 0; i < g.rows.inputs.size(); ++i)
        keys[name][i].push_back(*(std::ranges::upper_bound(levels, g.rows.inputs[i][j]) - 1));
  }
  std::map<std::vector<double>, std::size_t> numbers;
  for (const auto& [name, rows] : keys)
    for (const auto& key : rows) numbers.emplace(key, 0);
  chosen.cell_count = 0;
  for (auto& [key, number] : numbers) number = chosen.cell_count++;
  for (auto& [name, g] : chosen.groups) {
    g.units.clear();
    for (const auto& key : keys[name]) g.units.push_back(numbers.at(key));
  }
}

}  // namespace detail

/// Chooses rows for a law. Throws for tests and columns that make no sense, naming line, column and value for a number
/// that the law cannot take; a row without one is dropped where `choice` says so.
[[nodiscard]] inline chosen_runs choose_runs(const csv_table& table, const law_description& law,
                                             const row_choice& choice) {
  chosen_runs chosen;
  chosen.read = table.rows.size();
  std::map<std::string, std::string> given;
  for (const std::string& c : choice.columns) {
    const auto [name, source] = split_pair(c, "--column");
    if (!given.emplace(name, source).second)
      throw error(errc::invalid_argument,
                  "--column " + name + " is given twice, '" + given.at(name) + "' and '" + source + "'");
  }
  const std::string response = law.losses ? "loss" : "score";
  for (const auto& [name, unused] : given) {
    std::vector<std::string> known{response, "C"};
    for (const law::input& x : law.inputs) known.emplace_back(x.name);
    if (std::ranges::find(known, name) == known.end())
      throw error(errc::invalid_argument, "--column " + name + ": the law " + law.name + " has no input '" + name +
                                              "'; did you mean '" + nearest_names(name, known, 1).front() + "'?");
  }
  for (const law::input& x : law.inputs) chosen.sources.push_back(source_for(table, given, std::string(x.name)));
  chosen.sources.push_back(choice.response.empty() ? source_for(table, given, response)
                                                   : source_of(table, choice.response));
  std::vector<row_test> tests;
  std::vector<row_test> held;
  for (const std::string& t : choice.where) tests.push_back(test_of(table, t, "--where"));
  for (const std::string& t : choice.hold_out) held.push_back(test_of(table, t, "--hold-out"));
  const auto group_column = choice.group.empty() ? std::nullopt : std::optional(table.column(choice.group));
  std::vector<std::size_t> cell_columns;
  for (const std::string& c : choice.cells) {
    const auto usual = usual_source(table, c);
    cell_columns.push_back(usual ? *usual->column : table.column(c));
  }

  std::vector<std::size_t> dropped(tests.size() + 1, 0);
  std::vector<std::pair<run_group*, std::vector<std::string>>> cell_of_row;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto failed = std::ranges::find_if(tests, [&](const row_test& t) { return !t.holds(table, i); });
    if (failed != tests.end()) {
      ++dropped[static_cast<std::size_t>(failed - tests.begin())];
      continue;
    }
    std::vector<double> x;
    std::optional<std::string> incomplete;
    for (std::size_t j = 0; j < chosen.sources.size(); ++j) {
      x.push_back(chosen.sources[j].value(table, i));
      const bool last = j == law.inputs.size();
      const law::input want = !last        ? law.inputs[j]
                              : law.losses ? law::input{"loss", law::domain::positive}
                                           : law::input{"score", law::domain::any};
      const std::string found = std::string(want.name) +
                                (chosen.sources[j].text == want.name ? "" : " (" + chosen.sources[j].text + ")") +
                                " must be " + (std::isinf(x.back()) ? "finite and " : "") +
                                std::string(law::detail::words_for(want.where)) + ", found ";
      if (!std::isfinite(x.back())) {
        if (!incomplete)
          incomplete =
              found + (chosen.sources[j].column ? "'" + table.rows[i][*chosen.sources[j].column] + "'" : "no number");
      } else if (!law::detail::lies_in(x.back(), want.where)) {
        throw error(errc::invalid_argument, table.place(i) + ": " + found + law::detail::shown(x.back()));
      }
    }
    if (incomplete) {
      if (!choice.drop_incomplete)
        throw error(errc::invalid_argument,
                    table.place(i) + ": " + *incomplete + " (--drop-incomplete leaves such rows out)");
      ++dropped.back();
      continue;
    }
    const std::string name = group_column ? table.rows[i][*group_column] : "all";
    if (name.empty())
      throw error(errc::invalid_argument, table.place(i) + ": the column '" + choice.group + "' of groups is empty");
    run_group& g = chosen.groups[name];
    const bool out = !held.empty() && std::ranges::all_of(held, [&](const row_test& t) { return t.holds(table, i); });
    law_rows& to = out ? g.held_out : g.rows;
    to.responses.push_back(x.back());
    x.pop_back();
    to.inputs.push_back(std::move(x));
    ++(out ? chosen.held_out : chosen.used);
    if (out) continue;
    g.table_rows.push_back(i);
    std::vector<std::string> cell;
    for (const std::size_t c : cell_columns) cell.push_back(table.rows[i][c]);
    cell_of_row.emplace_back(&g, std::move(cell));
  }
  for (std::size_t t = 0; t < tests.size(); ++t)
    if (dropped[t] > 0) chosen.left_out.emplace_back("--where " + tests[t].text, dropped[t]);
  if (dropped.back() > 0) chosen.left_out.emplace_back("incomplete", dropped.back());
  if (chosen.used == 0) {
    throw error(
        errc::invalid_argument,
        "no row of " + table.name + (chosen.held_out > 0 ? " is left to fit by --hold-out" : " passes --where"));
  }
  if (!held.empty() && chosen.held_out == 0)
    throw error(errc::invalid_argument, "--hold-out " + choice.hold_out.front() + " holds for no row of " + table.name);
  for (const auto& [name, g] : chosen.groups)
    if (g.rows.responses.empty())
      throw error(errc::invalid_argument, "--hold-out leaves no row to fit in the group '" + name + "'");

  if (choice.cells_by_inputs) {
    detail::number_cells_by_inputs(chosen, law);
    return chosen;
  }
  std::map<std::vector<std::string>, std::size_t, decltype(&detail::cell_before)> numbers(&detail::cell_before);
  for (const auto& [g, cell] : cell_of_row) numbers.emplace(cell, 0);
  for (auto& [cell, number] : numbers) number = chosen.cell_count++;
  for (const auto& [g, cell] : cell_of_row) g->units.push_back(numbers.at(cell));
  return chosen;
}

/// A number for each row by its place when rows are sorted: draws by it do not depend on the order of the file.
[[nodiscard]] inline std::vector<std::size_t> ranks_of(const law_rows& rows) {
  std::vector<std::size_t> order(rows.inputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::tie(rows.inputs[a], rows.responses[a], a) < std::tie(rows.inputs[b], rows.responses[b], b);
  });
  std::vector<std::size_t> rank(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) rank[order[k]] = k;
  return rank;
}

}  // namespace smelt::tool
