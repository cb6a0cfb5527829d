// What does a file of smelt fit hold? Laws with their resamples, as the commands that use a fit read them back.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
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
  std::optional<double> sparsity;  ///< of the frontiers that smelt fit printed, where there were any

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

namespace detail {

/// The coefficients of a saved group as fitted. Throws corrupt where names or values are not those that were fitted.
[[nodiscard]] inline std::vector<double> fitted_in(const nlohmann::json& list, const law_description& law) {
  std::vector<double> fitted;
  for (const auto& c : list) {
    if (fitted.size() == law.coefficients.size()) {
      fitted.push_back(0);
      break;
    }
    const law::coefficient& known = law.coefficients[fitted.size()];
    const auto name = c.at("name").get<std::string>();
    const double as_fitted = c.at("fitted").get<double>();
    const double value = c.at("value").get<double>();
    if (name != known.name)
      throw error(errc::corrupt, "coefficient " + std::to_string(fitted.size() + 1) + " of " + law.name + " must be " +
                                     std::string(known.name) + ", found " + name);
    const double meant = known.logarithmic ? std::exp(as_fitted) : as_fitted;
    if (!(std::fabs(value - meant) <= 1e-9 * std::fabs(meant)))
      throw error(errc::corrupt, "the value of " + name + ", " + significant(value) + ", must be " +
                                     significant(meant) + " as its \"fitted\" says");
    fitted.push_back(as_fitted);
  }
  if (fitted.size() != law.coefficients.size())
    throw error(errc::corrupt, law.name + " has " + std::to_string(law.coefficients.size()) + " coefficients, found " +
                                   std::to_string(list.size()));
  return fitted;
}

/// The least and the most of something. Throws corrupt unless they are two, the least first.
[[nodiscard]] inline std::pair<double, double> range_in(const nlohmann::json& j, const std::string& of) {
  const std::pair<double, double> range{j.at(0).get<double>(), j.at(1).get<double>()};
  if (j.size() != 2 || !(range.first <= range.second))
    throw error(errc::corrupt, "the range of " + of + " must be its least and its most, found " + j.dump());
  return range;
}

/// One group of a saved fit. Throws corrupt, or what nlohmann-json throws, for one that smelt fit did not write.
[[nodiscard]] inline saved_group group_in(const nlohmann::json& j, const std::string& name,
                                          const law_description& law) {
  saved_group g{name, fitted_in(j.at("coefficients"), law), {}, {}, j.at("rmse").get<double>(), {}};
  if (!(g.rmse >= 0)) throw error(errc::corrupt, "rmse must be at least 0, found " + significant(g.rmse));
  if (j.contains("bootstrap")) g.resampled = j["bootstrap"].at("fitted").get<std::vector<std::vector<double>>>();
  for (const auto& p : g.resampled)
    if (!p.empty() && p.size() != g.fitted.size())
      throw error(errc::corrupt, "a resample has " + std::to_string(p.size()) + " coefficients, needed are " +
                                     std::to_string(g.fitted.size()));
  for (const law::input& x : law.inputs) {
    const std::string input(x.name);
    g.ranges[input] = range_in(j.at("ranges").at(input), input);
  }
  if (has_frontier(law.name)) {
    const auto [least, most] = range_in(j.at("compute_window"), "compute_window");
    if (!(least > 0)) throw error(errc::corrupt, "compute_window must be above 0, found " + significant(least));
    g.window = {least, most};
  }
  return g;
}

}  // namespace detail

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
  std::string part;
  try {
    saved_fit f{name,
                law_called(j.at("form").get<std::string>()),
                j.at("conventions"),
                j.at("provenance"),
                j.value("bootstrap", nlohmann::json()),
                {},
                {}};
    for (const auto& [group, g] : j.at("groups").items()) {
      part = ": group " + group;
      f.groups.push_back(detail::group_in(g, group, f.law));
      if (g.contains("frontier") && g["frontier"].contains("sparsity"))
        f.sparsity = g["frontier"]["sparsity"].get<double>();
    }
    if (f.groups.empty()) throw error(errc::corrupt, "no groups");
    return f;
  } catch (const nlohmann::json::exception& e) {
    const std::string problem = e.what();
    // behind "[json.exception.type_error.302] "
    throw error(errc::corrupt,
                "'" + name + "' is no whole file of smelt fit" + part + ": " + problem.substr(problem.find(' ') + 1));
  } catch (const error& e) {
    throw error(errc::corrupt, "'" + name + "' is no whole file of smelt fit" + part + ": " + e.what());
  }
}

/// The sparsity of frontiers: as asked, or else the fit's own. Throws invalid_argument where a law has none, where
/// there is none, and unless it is at least 0 and below 1.
[[nodiscard]] inline double sparsity_of(const saved_fit& fit, const std::optional<double>& asked) {
  if (!needs_sparsity(fit.law.name)) {
    if (asked)
      throw error(errc::invalid_argument, "--sparsity: the law " + fit.law.name + " of " + fit.file + " has none");
    return 0;
  }
  if (!asked && !fit.sparsity)
    throw error(errc::invalid_argument, "'" + fit.file + "' has no frontier's sparsity; say it with --sparsity");
  const double sparsity = asked ? *asked : *fit.sparsity;
  if (!(sparsity >= 0 && sparsity < 1))
    throw error(errc::invalid_argument,
                "the sparsity of a frontier must be at least 0 and below 1, found " + law::detail::shown(sparsity));
  return sparsity;
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
