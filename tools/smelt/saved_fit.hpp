// What does a file of smelt fit hold? Laws with their resamples, as the commands that use a fit read them back.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <smelt/core/nearest_name.hpp>
#include <smelt/law/frontier.hpp>
#include <smelt/law/gain.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fitted_runs.hpp"
#include "table.hpp"

namespace smelt::tool {

/// One group of a saved fit.
struct saved_group {
  std::string name;
  std::vector<double> fitted;                  ///< coefficients as fitted
  std::vector<std::vector<double>> resampled;  ///< a draw each; empty where a draw failed
  law::compute_window window;                  ///< training compute of the runs
  double rmse = 0;
  std::map<std::string, std::pair<double, double>> ranges;  ///< of every input
};

/// A saved fit of one law.
struct saved_fit {
  std::string file;
  law_description law;
  nlohmann::json conventions;
  nlohmann::json provenance;
  nlohmann::json bootstrap;  ///< its scheme; null without
  std::vector<saved_group> groups;
  double sparsity = 0;  ///< of the frontiers that smelt fit printed: the middle of the runs unless asked otherwise

  /// Throws invalid_argument for a name that is no group's.
  [[nodiscard]] const saved_group& group(const std::string& name) const {
    std::string known;
    for (const saved_group& g : groups) {
      if (g.name == name) return g;
      known += (known.empty() ? "" : ", ") + g.name;
    }
    throw error(errc::invalid_argument, file + " has no group '" + name + "'; it has " + known);
  }
};

/// Reads fit.json. Throws io for a file that cannot be read, corrupt for one that smelt fit did not write, naming what
/// is wrong.
[[nodiscard]] inline saved_fit read_fit(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name)) throw error(errc::io, "cannot open the fit '" + name + "'");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("format"))
    throw error(errc::corrupt, "'" + name + "' is no file of smelt fit");
  if (j["format"] == "smelt-fits-1")
    throw error(errc::corrupt, "'" + name + "' compares several forms; give the file of one of them");
  if (j["format"] != "smelt-fit-1")
    throw error(errc::corrupt, "'" + name + "' must have the format smelt-fit-1, found " + j["format"].dump());
  try {
    saved_fit f{name,
                law_called(j.at("form").get<std::string>()),
                j.at("conventions"),
                j.at("provenance"),
                j.value("bootstrap", nlohmann::json()),
                {}};
    for (const auto& [group, g] : j.at("groups").items()) {
      saved_group s{group, {}, {}, {}, g.at("rmse").get<double>(), {}};
      for (const auto& c : g.at("coefficients")) s.fitted.push_back(c.at("fitted").get<double>());
      if (s.fitted.size() != f.law.coefficients.size())
        throw error(errc::corrupt, "'" + name + "': " + f.law.name + " has " +
                                       std::to_string(f.law.coefficients.size()) + " coefficients, found " +
                                       std::to_string(s.fitted.size()));
      if (g.contains("bootstrap")) s.resampled = g["bootstrap"].at("fitted").get<std::vector<std::vector<double>>>();
      for (const auto& p : s.resampled)
        if (!p.empty() && p.size() != s.fitted.size())
          throw error(errc::corrupt, "'" + name + "': a resample of group " + group + " has " +
                                         std::to_string(p.size()) + " coefficients, needed are " +
                                         std::to_string(s.fitted.size()));
      if (g.contains("compute_window"))
        s.window = {g["compute_window"].at(0).get<double>(), g["compute_window"].at(1).get<double>()};
      for (const auto& [input, range] : g.at("ranges").items())
        s.ranges[input] = {range.at(0).get<double>(), range.at(1).get<double>()};
      if (g.contains("frontier") && g["frontier"].contains("sparsity"))
        f.sparsity = g["frontier"]["sparsity"].get<double>();
      f.groups.push_back(std::move(s));
    }
    return f;
  } catch (const nlohmann::json::exception& e) {
    throw error(errc::corrupt, "'" + name + "' is no whole file of smelt fit: " + e.what());
  }
}

/// In what two fits differ that should be alike to be compared; empty when in nothing.
[[nodiscard]] inline std::vector<std::string> differences_between(const saved_fit& a, const saved_fit& b) {
  std::vector<std::string> all;
  const auto look = [&](const nlohmann::json& x, const nlohmann::json& y, const std::string& prefix) {
    std::set<std::string> keys;
    for (const auto& [key, unused] : x.items()) keys.insert(key);
    for (const auto& [key, unused] : y.items()) keys.insert(key);
    for (const std::string& key : keys) {
      const nlohmann::json u = x.value(key, nlohmann::json());
      const nlohmann::json v = y.value(key, nlohmann::json());
      if (u != v)
        all.push_back(prefix + key + " is " + u.dump() + " in " + a.file + " and " + v.dump() + " in " + b.file);
    }
  };
  look(a.conventions, b.conventions, "");
  look(a.provenance.value("columns", nlohmann::json::object()), b.provenance.value("columns", nlohmann::json::object()),
       "the column of ");
  if (a.provenance.value("where", nlohmann::json()) != b.provenance.value("where", nlohmann::json()))
    all.push_back("--where is " + a.provenance["where"].dump() + " in " + a.file + " and " +
                  b.provenance["where"].dump() + " in " + b.file);
  return all;
}

/// "12.3 [11.9, 12.8]", or the number alone.
[[nodiscard]] inline std::string with_interval(double value, const std::optional<law::interval>& of, int digits = 4) {
  return significant(value, digits) +
         (of ? " [" + significant(of->low, digits) + ", " + significant(of->high, digits) + "]" : "");
}

/// Adds "NAME": value and, with draws, "NAME_interval" to an object.
inline void put(nlohmann::ordered_json& j, const std::string& name, double value,
                const std::optional<law::interval>& of) {
  j[name] = value;
  if (of) j[name + "_interval"] = {of->low, of->high};
}

/// A group's frontier: its exponents, and where budgets lead, with intervals. Throws invalid_argument for exponents
/// that have no frontier.
[[nodiscard]] inline nlohmann::ordered_json frontier_json(const std::string& law, const saved_group& g,
                                                          const std::vector<double>& budgets, double sparsity,
                                                          double level) {
  const auto number = [&](nlohmann::ordered_json& j, const std::string& name, auto&& of) {
    put(j, name, of(two_terms_of(law, g.fitted, sparsity)),
        interval_of(over_draws(g.resampled, [&](const auto& p) { return of(two_terms_of(law, p, sparsity)); }), level));
  };
  const bool flops = needs_sparsity(law);
  nlohmann::ordered_json j{{"group", g.name}};
  if (flops) j["sparsity"] = sparsity;
  number(j, "gamma", [](const law::two_term_law& l) { return law::frontier_exponent(l); });
  const std::string first = flops ? "flops_per_token" : "parameters";
  number(j, first + "_exponent", [](const law::two_term_law& l) { return l.c / (l.a + l.c); });
  number(j, "tokens_exponent", [](const law::two_term_law& l) { return l.a / (l.a + l.c); });
  j["budgets"] = nlohmann::ordered_json::array();
  for (const double c : budgets) {
    nlohmann::ordered_json b{{"compute", c}};
    number(b, "loss", [&](const auto& l) { return law::frontier_split(l, c).loss; });
    number(b, first, [&](const auto& l) { return law::frontier_split(l, c).first / (flops ? 1 : 6); });
    number(b, "tokens", [&](const auto& l) { return law::frontier_split(l, c).tokens; });
    number(b, "tokens_per_parameter", [&](const auto& l) {
      const law::frontier_point p = law::frontier_split(l, c);
      return 6 * p.tokens / p.first;
    });
    b["extrapolated"] = !g.window.holds(c);
    j["budgets"].push_back(std::move(b));
  }
  return j;
}

/// The same for people.
[[nodiscard]] inline table frontier_table(const nlohmann::ordered_json& j) {
  const auto cell = [](const nlohmann::ordered_json& b, const std::string& name, int digits) {
    std::string text = significant(b.at(name).get<double>(), digits);
    if (b.contains(name + "_interval"))
      text += " [" + significant(b[name + "_interval"][0].get<double>(), digits) + ", " +
              significant(b[name + "_interval"][1].get<double>(), digits) + "]";
    return text;
  };
  const bool flops = j.contains("flops_per_token_exponent");
  const std::string first = flops ? "flops_per_token" : "parameters";
  table t{"Frontier of " + j.at("group").get<std::string>() +
              (flops ? " at S = " + significant(j.at("sparsity").get<double>(), 4) : ""),
          {{"FLOPs"}, {"L*"}, {flops ? "F*" : "N*"}, {"D*"}, {"tokens/parameter"}, {"", false}},
          {}};
  for (const auto& b : j.at("budgets"))
    t.rows.push_back({significant(b.at("compute").get<double>(), 4), cell(b, "loss", 5), cell(b, first, 4),
                      cell(b, "tokens", 4), cell(b, "tokens_per_parameter", 4),
                      b.at("extrapolated").get<bool>() ? "extrapolated" : ""});
  t.notes.push_back("gamma " + cell(j, "gamma", 5) + "; " + (flops ? "F*" : "N*") + " grows as C^" +
                    cell(j, first + "_exponent", 5));
  return t;
}

/// Powers of ten from the least to the most compute of the runs and one beyond.
[[nodiscard]] inline std::vector<double> usual_budgets(const law::compute_window& window) {
  std::vector<double> all;
  for (double power = std::pow(10.0, std::floor(std::log10(window.least))); power <= 10 * window.most; power *= 10)
    if (power >= window.least) all.push_back(power);
  return all;
}

}  // namespace smelt::tool
