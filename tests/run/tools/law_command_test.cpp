// Do fit, gain, plan and law say what the library says, and refuse what cannot be answered?
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;
using smelt_test::outcome;

const std::string sparse = SMELT_SOURCE_DIR "/tests/data/law/sparse_grid.csv";
const std::string looped = SMELT_SOURCE_DIR "/tests/data/law/looped_grid.csv";
/// The columns that looped_grid.csv leaves to be computed, in parameters.
const std::vector<std::string> looped_columns{"--column", "N_loop=0.7*N_act", "--column", "N_total=N_act*(1+(E-1)/2)"};

outcome run(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return smelt_test::run_tool(arguments);
}

json json_of(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) {
  arguments.push_back("--json");
  const outcome o = run(std::move(arguments), more);
  INFO(o.err);
  REQUIRE(o.exit == 0);
  return json::parse(o.out);
}

/// The program refuses, with one line that says so.
void check_refused(const std::vector<std::string>& arguments, const std::string& words) {
  const outcome o = run(arguments);
  CAPTURE(arguments);
  CHECK(o.exit == 2);
  CHECK(o.out.empty());
  CHECK_THAT(o.err, StartsWith("smelt: error: ") && ContainsSubstring(words));
  CHECK(std::count(o.err.begin(), o.err.end(), '\n') == 1);
}

std::string file_with(const smelt_test::temporary_folder& folder, const std::string& name, const std::string& text) {
  const std::string path = (folder.path() / name).string();
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

double coefficient(const json& group, const std::string& name) {
  for (const auto& c : group.at("coefficients"))
    if (c.at("name") == name) return c.at("value").get<double>();
  FAIL("no coefficient " << name);
  return 0;
}

bool inside(double x, const json& interval) {
  return interval.at(0).get<double>() < x && x < interval.at(1).get<double>();
}

/// A file of the public tables; empty, with a word about it, where they are not.
std::string public_table(const std::string& name) {
  const char* folder = std::getenv("SMELT_LAW_DATA");
#ifdef SMELT_LAW_DATA
  if (folder == nullptr) folder = SMELT_LAW_DATA;
#endif
  const std::string path = folder == nullptr ? "" : std::string(folder) + "/" + name;
  if (path.empty() || !std::filesystem::exists(path)) {
    WARN("skipped: " + name + " is not in SMELT_LAW_DATA");
    return "";
  }
  return path;
}

}  // namespace

TEST_CASE("A table of runs gives fits with intervals, and gains from them", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  const json document =
      json_of({"fit", sparse, "--group", "arch", "--bootstrap", "cells:100", "--cell", "cell", "--out", out});
  CHECK(json::parse(smelt_test::text_of(folder.path() / "fits" / "fit.json")) == document);
  const auto& base = document["groups"]["baseline"];
  CHECK(coefficient(base, "E") == Approx(1.6216941456887954).epsilon(1e-8));
  CHECK(inside(1.6217, base["coefficients"][2]["interval"]));
  CHECK(base["coefficients"][2]["standard_error"].get<double>() > 0);
  CHECK(base["rows"] == 72);
  CHECK(base["bootstrap"]["draws"] == 100);
  CHECK(base["bootstrap"]["failed"] == 0);
  CHECK(base["frontier"]["gamma"].get<double>() == Approx(.23858).margin(1e-5));
  CHECK(document["groups"]["smelt"]["frontier"]["gamma"].get<double>() == Approx(.25194).margin(1e-5));
  CHECK(inside(.23858, base["frontier"]["gamma_interval"]));
  CHECK(document["conventions"]["delta"] == 1e-3);
  const auto& from = document["provenance"];
  CHECK(from["columns"]["F"] == "F");
  CHECK(from["units"]["D"] == "tokens");
  CHECK(from["rows"]["read"] == 144);
  CHECK(from["rows"]["fitted"] == 144);
  CHECK_THAT(from["hash"].get<std::string>(), StartsWith("xxh64:"));

  const std::vector<std::string> ask{"gain",     out + "/fit.json", "--base",     "baseline",
                                     "--target", "smelt",           "--sparsity", "0.95"};
  const json gains = json_of(ask, {"--compute", "1.3e19,1e20,1e21,2.2e21,1e23", "--convention", "baseline"});
  const std::vector<double> published{.0706, .1332, .1738, .1779};
  for (std::size_t i = 0; i < published.size(); ++i) {
    CHECK(gains["gains"][i]["gain"].get<double>() == Approx(published[i]).margin(1e-4));
    CHECK(inside(published[i], gains["gains"][i]["interval"]));
  }
  CHECK(gains["gains"][2]["gain"].get<double>() == Approx(0.17376633380190276).epsilon(1e-6));
  CHECK(gains["gains"][2]["extrapolated"] == false);
  CHECK(gains["gains"][4]["extrapolated"] == true);
  CHECK_THAT(gains["definition"].get<std::string>(), ContainsSubstring("1 - C_target / C"));
  const json other = json_of(ask, {"--compute", "1e21"});
  CHECK(other["convention"] == "target");
  CHECK(other["gains"][0]["gain"].get<double>() == Approx(0.1753).margin(1e-4));

  // the frontier at equal loss says the same as the gain
  const json frontiers = json_of({"law", "frontier", out + "/fit.json", "--sparsity", "0.95", "--compute", "1e21"});
  CHECK(frontiers["frontiers"][1]["budgets"][0]["loss"].get<double>() == other["gains"][0]["loss"].get<double>());
  const auto& budget = frontiers["frontiers"][0]["budgets"][0];
  CHECK(budget["flops_per_token"].get<double>() * budget["tokens"].get<double>() == Approx(1e21).epsilon(1e-12));
  CHECK(budget["tokens_per_parameter"].get<double>() ==
        Approx(6 * budget["tokens"].get<double>() / budget["flops_per_token"].get<double>()).epsilon(1e-12));
  CHECK(inside(budget["tokens"].get<double>(), budget["tokens_interval"]));

  check_refused(
      {"gain", out + "/fit.json", "--base", "base", "--target", "smelt", "--sparsity", "0.95", "--compute", "1e21"},
      "no group 'base'; it has baseline, smelt");
  check_refused({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--sparsity", "0.95",
                 "--compute", "1e50", "--convention", "baseline"},
                "must be above the irreducible loss");
  // without a sparsity, that of the middle of the runs
  const json middle =
      json_of({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--compute", "1e21"});
  CHECK(middle["sparsity"] == document["groups"]["baseline"]["frontier"]["sparsity"]);
  CHECK(middle["sparsity"].get<double>() == Approx(.95).margin(.01));
  check_refused(
      {"gain", out + "/fit.json", "--base", "smelt", "--target", "smelt", "--sparsity", ".9", "--compute", "1e21"},
      "two groups");
  check_refused({"plan", "--flops", "1e21", "--law", out + "/fit.json"}, "a fit of looped-moe, found smelt");
}

TEST_CASE("A fit that was changed by hand is refused by name", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  const json whole = json_of({"fit", sparse, "--group", "arch", "--bootstrap", "rows:40", "--out", out});
  const auto refuse = [&](const std::string& pointer, const json& value, const std::string& words) {
    CAPTURE(pointer);
    json changed = whole;
    const json::json_pointer at(pointer);
    if (value.is_discarded()) {
      json& parent = changed.at(at.parent_pointer());
      if (parent.is_array()) {
        parent.erase(std::stoul(at.back()));
      } else {
        parent.erase(at.back());
      }
    } else {
      changed[at] = value;
    }
    const std::string path = file_with(folder, "changed.json", changed.dump());
    check_refused({"gain", path, "--base", "baseline", "--target", "smelt", "--compute", "1e20"}, words);
    check_refused({"law", "frontier", path}, words);
  };
  const json gone = json::parse("", nullptr, false);
  const std::string group = "/groups/smelt/";
  refuse("/groups", json::object(), "no groups");
  refuse(group + "coefficients/0/value", 3, "the value of A, 3, must be 20256.5 as its \"fitted\" says");
  refuse(group + "coefficients/0/name", "K", "coefficient 1 of smelt must be A, found K");
  refuse(group + "coefficients/5", gone, "smelt has 6 coefficients, found 5");
  refuse(group + "coefficients/0/fitted", "9", "group smelt: type must be number, but is string");
  refuse(group + "compute_window", gone, "group smelt: key 'compute_window' not found");
  refuse(group + "compute_window", json{0, 1e20}, "compute_window must be above 0, found 0");
  refuse(group + "compute_window", json{1e20, 1e19}, "its least and its most, found [1e+20,1e+19]");
  refuse(group + "ranges/S", gone, "key 'S' not found");
  refuse(group + "rmse", -1, "rmse must be at least 0, found -1");
  refuse(group + "bootstrap/fitted/0", json{1, 2}, "a resample has 2 coefficients, needed are 6");

  // a sparsity is asked for where the file has none
  json changed = whole;
  for (auto& g : changed["groups"]) g.erase("frontier");
  const std::string without = file_with(folder, "without.json", changed.dump());
  check_refused({"law", "frontier", without}, "say it with --sparsity");
  CHECK(run({"law", "frontier", without, "--sparsity", "0.9"}).exit == 0);
  check_refused({"law", "frontier", without, "--sparsity", "nan"}, "must be at least 0 and below 1, found nan");
  check_refused({"law", "frontier", without, "--sparsity", "1"}, "must be at least 0 and below 1, found 1");

  // what would be left unused is refused
  for (const std::vector<std::string>& unused :
       {std::vector<std::string>{"--runs", sparse}, {"--amplitude"}, {"--bootstrap", "rows:10"}}) {
    std::vector<std::string> ask{"gain",     out + "/fit.json", "--base",    "baseline",
                                 "--target", "smelt",           "--compute", "1e20"};
    ask.insert(ask.end(), unused.begin(), unused.end());
    check_refused(ask, unused.front() + " goes with --by COLUMN");
  }
  const std::string far =
      run({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--compute", "1e-300"}).out;
  CHECK_THAT(far, ContainsSubstring("e+") && ContainsSubstring("extrapolated"));
  for (std::size_t begin = 0; begin < far.size(); begin = far.find('\n', begin) + 1)
    CHECK(far.find('\n', begin) - begin < 160);
}

TEST_CASE("Cells are found by the inputs where no column names them", "[tools]") {
  const smelt_test::temporary_folder folder;
  std::string text = smelt_test::text_of(sparse);
  text.replace(text.find("arch,cell,"), 10, "arch,place,");
  const std::string unnamed = file_with(folder, "runs.csv", text);
  const std::vector<std::string> options{"--group", "arch", "--bootstrap", "cells:60"};
  const json named = json_of({"fit", sparse}, options);
  const json found = json_of({"fit", unnamed}, options);
  // sizes and sparsities of the two architectures differ a little, and are the same 12 cells
  const auto draws = [](const json& j, const char* group) { return j["groups"][group]["bootstrap"]["fitted"]; };
  CHECK(named["bootstrap"]["cell"] == json{"cell"});
  CHECK(found["bootstrap"]["cell"].empty());
  CHECK(named["bootstrap"]["cells"] == 12);
  CHECK(found["bootstrap"]["cells"] == 12);
  for (const char* group : {"baseline", "smelt"}) {
    CHECK(found["groups"][group]["bootstrap"]["failed"] == 0);
    CHECK(draws(found, group).size() == 60);
    CHECK(found["groups"][group]["coefficients"][2]["standard_error"].get<double>() ==
          Approx(named["groups"][group]["coefficients"][2]["standard_error"].get<double>()).epsilon(.5));
  }
  check_refused({"fit", file_with(folder, "t.csv", "r,loss\n1,3\n2,2.5\n3,2.3\n4,2.2\n"), "--form", "test-time-depth",
                 "--bootstrap", "cells:10"},
                "add --cell");
}

TEST_CASE("A fit draws its plots, for light and dark and without a network", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  REQUIRE(run({"fit", sparse, "--group", "arch", "--bootstrap", "rows:40", "--out", out}).exit == 0);
  const std::vector<std::string> expected{"clouds-baseline.svg",   "clouds-smelt.svg",   "fit.json",    "frontier.svg",
                                          "profiles-baseline.svg", "profiles-smelt.svg", "report.html", "residuals.svg",
                                          "slices-baseline.svg",   "slices-smelt.svg"};
  CHECK(smelt_test::names_in(out) == expected);
  for (const std::string& name : expected) {
    if (name.ends_with(".json")) continue;
    CAPTURE(name);
    const std::string text = smelt_test::text_of(folder.path() / "fits" / name);
    CHECK_THAT(text, ContainsSubstring("<svg") && ContainsSubstring("prefers-color-scheme: dark"));
    CHECK(text.find("nan") == std::string::npos);
    for (std::size_t at = text.find("http"); at != std::string::npos; at = text.find("http", at + 1))
      CHECK(text.substr(at, 26) == "http://www.w3.org/2000/svg");
  }
  CHECK_THAT(smelt_test::text_of(out + "/frontier.svg"), ContainsSubstring("class=\"band\""));
  CHECK_THAT(smelt_test::text_of(out + "/report.html"),
             ContainsSubstring("Frontier of smelt") && ContainsSubstring("smelt fit " + sparse));

  // along every coefficient, amplitudes among them, the objective is least at the fit
  const json group = json::parse(smelt_test::text_of(out + "/fit.json"))["groups"]["smelt"];
  CHECK(group["profiles"].size() == 6);
  for (const auto& [name, points] : group["profiles"].items()) {
    CAPTURE(name);
    const double least = group["objective"].get<double>();
    CHECK(points.size() > 6);
    CHECK(points.front()[1].get<double>() > 1.2 * least);
    CHECK(points.back()[1].get<double>() > 1.2 * least);
    for (const auto& p : points) CHECK(p[1].get<double>() >= least * (1 - 1e-9));
  }
}

TEST_CASE("Maps of visits are compared on runs held out", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "maps").string();
  const std::vector<std::string> held{"--hold", "E_start=1", "--hold", "E_max=256"};
  std::vector<std::string> ask{
      "fit",        looped,
      "--form",     "looped-moe:linear-sparsity,looped-moe:power-sparsity,looped-moe:bounded-sparsity",
      "--hold-out", "R>8",
      "--out",      out};
  ask.insert(ask.end(), looped_columns.begin(), looped_columns.end());
  const json document = json_of(ask, held);
  const std::vector<double> rmse{.0491, .0248, .0020};
  REQUIRE(document["comparison"].size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(document["comparison"][i]["hold_out"]["rows"] == 75);
    CHECK(document["comparison"][i]["hold_out"]["rmse"].get<double>() == Approx(rmse[i]).margin(5e-5));
  }
  CHECK(document["comparison"][0]["hold_out"]["bias"].get<double>() < -.04);
  const auto& bounded = document["fits"][2]["groups"]["all"];
  CHECK(coefficient(bounded, "k1") == Approx(1.114).margin(5e-4));
  CHECK(coefficient(bounded, "k2") == Approx(2.437).margin(5e-4));
  CHECK(coefficient(bounded, "theta") == Approx(.234).margin(5e-4));
  CHECK(document["fits"][2]["provenance"]["columns"]["N_loop"] == "0.7*N_act");
  CHECK_THAT(smelt_test::text_of(out + "/report.html"),
             ContainsSubstring("Forms compared") && ContainsSubstring("Loss against visits"));
  CHECK_THAT(smelt_test::text_of(out + "/visits-looped-moe-bounded-sparsity.svg"), ContainsSubstring("runs held out"));
  check_refused({"plan", "--flops", "1e21", "--law", out + "/fit.json"}, "compares several forms");

  // and the one that holds plans
  const json plan = json_of({"plan", "--law", out + "/fit-looped-moe-bounded-sparsity.json", "--flops", "1e21",
                             "--memory", "3GB", "--bits", "4"});
  CHECK(plan["least_gain"].get<double>() == bounded["rmse"].get<double>());
  CHECK(plan["choice"]["memory_bytes"].get<double>() <= 3e9);
  for (const auto& c : plan["candidates"])
    if (!c.contains("rejected")) CHECK(c == plan["choice"]);
}

TEST_CASE("A fit is the same for rows in any order, other line ends, quotes and separators", "[tools]") {
  const smelt_test::temporary_folder folder;
  std::ifstream file(sparse);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::string other = "\xEF\xBB\xBF";
  const auto put = [&](const std::string& line) {
    std::string cell;
    std::string quoted;
    for (const char c : line + ",") {
      if (c != ',') {
        cell += c;
        continue;
      }
      quoted += (quoted.empty() ? "\"" : ";\"") + cell + "\"";
      cell.clear();
    }
    other += quoted + "\r\n\r\n";
  };
  put(lines.front());
  for (std::size_t i = lines.size(); i-- > 1;) put(lines[i]);
  const std::vector<std::string> ask{"--group", "arch", "--bootstrap", "cells:20", "--cell", "cell"};
  const std::vector<std::string> by_row{"--group", "arch", "--bootstrap", "rows:20"};
  const std::string turned = file_with(folder, "turned.csv", other);
  for (const auto& options : {ask, by_row}) {
    json a = json_of({"fit", sparse}, options);
    json b = json_of({"fit", turned, "--threads", "1"}, options);
    CHECK(a["provenance"]["hash"] != b["provenance"]["hash"]);
    CHECK(a["groups"] == b["groups"]);
  }
}

TEST_CASE("Lines may end in carriage returns alone", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string text = smelt_test::text_of(sparse);
  std::string other = text;
  std::ranges::replace(other, '\n', '\r');
  const json a = json_of({"fit", sparse, "--group", "arch"});
  const json b = json_of({"fit", file_with(folder, "old.csv", other), "--group", "arch"});
  CHECK(a["groups"] == b["groups"]);
  // a return within a line parts cells, and never joins 3 and 4 to 34
  check_refused({"fit", file_with(folder, "odd.csv", "F,S,D,loss\n1e9,0.9,1e10,3\r4\n")},
                "line 3 must have 4 cells, found 1");
}

TEST_CASE("A fit warns of what makes it worth little", "[tools]") {
  const auto warned = [](const json& document, const std::string& words) {
    const auto& list = document["groups"].front()["warnings"];
    return std::any_of(list.begin(), list.end(),
                       [&](const json& w) { return w.get<std::string>().find(words) != std::string::npos; });
  };
  const std::vector<std::string> ask{"fit", sparse, "--group", "arch"};
  CHECK(warned(json_of(ask, {"--bootstrap", "rows:39"}), "39 resamples are too few for intervals that hold 95 %"));
  CHECK_FALSE(warned(json_of(ask, {"--bootstrap", "rows:40"}), "too few"));
  CHECK_FALSE(warned(json_of(ask, {"--bootstrap", "rows:20", "--level", "0.9"}), "too few"));
  CHECK(warned(json_of(ask, {"--hold", "E=1e3"}), "R^2 is -"));
  CHECK_FALSE(warned(json_of(ask), "R^2"));
}

TEST_CASE("Columns go by usual names and formulas, and rows that are left out are counted", "[tools]") {
  const smelt_test::temporary_folder folder;
  std::string text = "Model Size,Training FLOP,val_loss,split\n";
  for (const double n : {1e8, 2e8, 4e8, 8e8})
    for (const double d : {2e9, 5e9, 1e10, 3e10}) {
      char line[120];
      std::snprintf(line, sizeof line, "%.17g,%.17g,%.17g,train\n", n, 6 * n * d,
                    1.7 + 400 / std::pow(n, .34) + 900 / std::pow(d, .3));
      text += line;
    }
  const std::string path = file_with(folder, "runs.csv", text + "1e8,6e17,nan,train\n1e8,6e17,9,test\n");
  check_refused({"fit", path, "--form", "chinchilla"}, "line 18: loss (val_loss) must be above 0, found 'nan'");
  const json document = json_of({"fit", path, "--form", "chinchilla", "--where", "split=train", "--drop-incomplete"});
  const auto& group = document["groups"]["all"];
  CHECK(coefficient(group, "E") == Approx(1.7).epsilon(1e-6));
  CHECK(coefficient(group, "alpha") == Approx(.34).epsilon(1e-6));
  CHECK(coefficient(group, "beta") == Approx(.3).epsilon(1e-6));
  CHECK(document["provenance"]["columns"]["D"] == "\"Training FLOP\"/(6*\"Model Size\")");
  CHECK(document["provenance"]["left_out"]["incomplete"] == 1);
  CHECK(document["provenance"]["left_out"]["--where split=train"] == 1);
  CHECK(group["rows"] == 16);
  CHECK(group["frontier"]["parameters_exponent"].get<double>() == Approx(.3 / .64).epsilon(1e-6));

  // in billions the law is the same, and budgets in FLOPs are not: that is said
  const outcome billions =
      run({"fit", path, "--form", "chinchilla", "--where", "split=train", "--drop-incomplete", "--column",
           "N=\"Model Size\"/1e9", "--column", "D=\"Training FLOP\"/\"Model Size\"/6e9"});
  CHECK(billions.exit == 0);
  CHECK_THAT(billions.err, ContainsSubstring("if the columns are in billions"));
  check_refused({"fit", path, "--form", "chinchilla", "--column", "N=\"Model Size\"*"}, "the trouble is at ");
  check_refused({"fit", path, "--form", "chinchilla", "--column", "M=val_loss"}, "has no input 'M'");
  check_refused({"fit", path, "--form", "chinchilla", "--column", "N=1e9", "--column", "N=2e9"},
                "--column N is given twice, '1e9' and '2e9'");
}

TEST_CASE("Gains by category and by length keep the law and refit E", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  REQUIRE(run({"fit", sparse, "--group", "arch", "--bootstrap", "cells:60", "--cell", "cell", "--out", out}).exit == 0);
  // the same losses, shifted by 0.2 for one length, and by 0.01 less for smelt in the other
  std::ifstream file(sparse);
  std::string line;
  std::getline(file, line);
  std::string text = "arch,cell,F,S,D,length,loss\n";
  while (std::getline(file, line)) {
    std::vector<std::string> cells(1);
    for (const char c : line) c == ',' ? cells.emplace_back() : cells.back() += c, void();
    for (const double length : {4096.0, 32.0}) {
      const double shift = length == 32 ? .2 : cells[0] == "smelt" ? -.01 : 0;
      text += cells[0] + "," + cells[1] + "," + cells[2] + "," + cells[3] + "," + cells[4] + "," +
              std::to_string(static_cast<int>(length)) + "," + std::to_string(std::stod(cells[6]) + shift) + "\n";
    }
  }
  const std::string runs = file_with(folder, "length.csv", text);
  const std::vector<std::string> ask{"gain",  out + "/fit.json", "--base", "baseline",  "--target",
                                     "smelt", "--sparsity",      "0.95",   "--compute", "1e21"};
  const json gains = json_of(ask, {"--by", "length", "--runs", runs});
  const auto& values = gains["by"]["values"];
  CHECK(values[0]["value"] == "32");  // by number, not by letters
  CHECK(values[0]["gains"][0]["gain"].get<double>() == Approx(gains["gains"][0]["gain"].get<double>()).margin(2e-4));
  CHECK(values[1]["gains"][0]["gain"].get<double>() > values[0]["gains"][0]["gain"].get<double>() + .05);
  CHECK(inside(values[1]["gains"][0]["gain"].get<double>(), values[1]["gains"][0]["interval"]));
  CHECK(values[0]["E"][0].get<double>() == Approx(1.6217 + .2).margin(2e-3));
  CHECK(inside(gains["by"]["tilt"][0]["tilt"].get<double>(), gains["by"]["tilt"][0]["interval"]));
  CHECK(json_of(ask, {"--by", "length", "--runs", runs, "--amplitude"})["by"]["refitted"].size() == 2);
  check_refused({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--sparsity", ".9", "--compute",
                 "1e21", "--by", "category"},
                "add --runs");
  check_refused({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--sparsity", ".9", "--compute",
                 "1e21", "--by", "category", "--runs", runs},
                "has no column 'category'");

  // fits of different conventions are compared with a warning
  const std::string wide = (folder.path() / "wide").string();
  REQUIRE(run({"fit", sparse, "--group", "arch", "--delta", "0.01", "--out", wide}).exit == 0);
  const outcome both = run({"gain", out + "/fit.json", wide + "/fit.json", "--base", "baseline", "--target", "smelt",
                            "--sparsity", "0.95", "--compute", "1e21"});
  CHECK(both.exit == 0);
  CHECK_THAT(both.err, ContainsSubstring("warning: delta is 0.001 in"));
}

TEST_CASE("Scores are judged by the baseline's curve, and paired losses by sign flips", "[tools]") {
  const smelt_test::temporary_folder folder;
  std::string scores = "arch,task,loss,score\n";
  std::string losses = "length,base,smelt\n";
  for (int i = 0; i < 12; ++i)
    for (const char* arch : {"baseline", "smelt"})
      for (const bool lower : {false, true}) {
        const double l = 3 - .1 * i;
        const double up = arch == std::string("smelt") ? .02 : 0;
        const double y =
            lower ? 5 + 40 / (1 + std::exp(-3 * (l - 2.5))) - up : .25 + .6 / (1 + std::exp(4 * (l - 2.4))) + up;
        scores +=
            std::string(arch) + (lower ? ",perplexity," : ",arc,") + std::to_string(l) + "," + std::to_string(y) + "\n";
      }
  for (int i = 0; i < 40; ++i)
    losses += std::to_string(i % 2 == 0 ? 32 : 4096) + "," + std::to_string(2 + .05 * i) + "," +
              std::to_string(2 + .05 * i - (i % 2 == 0 ? .01 : .03)) + "\n";
  const std::string table = file_with(folder, "scores.csv", scores);
  const std::string out = (folder.path() / "down").string();
  const json down = json_of({"law", "downstream", table, "--base", "baseline", "--metric", "task", "--lower-is-better",
                             "perplexity", "--out", out});
  for (const auto& metric : down["metrics"]) {
    CHECK(metric["groups"][0]["wins"] == 12);
    CHECK(metric["groups"][0]["sign_flip"]["mean"].get<double>() == Approx(.02).margin(1e-4));
    CHECK(metric["groups"][0]["sign_flip"]["p_two_sided"].get<double>() == Approx(2.0 / 4096));
  }
  CHECK(down["wins"]["smelt"]["won"] == 2);
  CHECK_THAT(smelt_test::text_of(out + "/downstream.svg"), ContainsSubstring("curve of baseline"));
  check_refused({"law", "downstream", table, "--base", "base", "--metric", "task"}, "has no group 'base'");
  check_refused({"law", "downstream", table, "--base", "baseline", "--metric", "task", "--lower-is-better", "perplex"},
                "did you mean 'perplexity'?");

  const std::string pairs = file_with(folder, "pairs.csv", losses);
  const json paired = json_of({"law", "paired", pairs, "--base", "base", "--target", "smelt", "--by", "length"});
  CHECK(paired["all"]["wins"] == 40);
  CHECK(paired["all"]["sign_flip"]["mean"].get<double>() == Approx(.02).epsilon(1e-9));
  CHECK(paired["tilt"].get<double>() == Approx(.02).epsilon(1e-9));
  CHECK(paired["groups"][0]["name"] == "32");
  const json quartiles = json_of({"law", "paired", pairs, "--base", "base", "--target", "smelt", "--quantiles", "4"});
  CHECK(quartiles["groups"].size() == 4);
  CHECK(quartiles["groups"][3]["rows"] == 10);
  check_refused({"law", "paired", pairs, "--base", "base", "--target", "smelt", "--quantiles", "41"}, "between 1 and");
  check_refused({"law", "paired", pairs, "--base", "base", "--target", "smel"}, "'smel'");
}

TEST_CASE("A plan under compute and memory is the published one", "[tools]") {
  const json document = json_of({"plan", "--law", "looped-moe", "--flops", "5e21", "--memory", "3GB", "--bits", "4"});
  const auto& choice = document["choice"];
  CHECK(choice["name"] == "1.0B");
  CHECK(choice["experts"] == 8);
  CHECK(choice["visits"] == 2);
  CHECK(choice["loss"].get<double>() == Approx(1.9757).margin(1e-4));
  CHECK(choice["tokens"].get<double>() > 5e11);
  CHECK(choice["inference_flops_ratio"].get<double>() == Approx(1.875));
  std::size_t chosen = 0;
  for (const auto& c : document["candidates"]) chosen += c.contains("rejected") ? 0u : 1u;
  CHECK(chosen == 1);
  const json small = json_of({"plan", "--flops", "1.5e22", "--ladder", "0.3B", "--experts", "8"});
  CHECK(small["choice"]["visits"] == 5);
  CHECK(small["best_visits"][0]["visits"] == 5);
  CHECK_THAT(run({"plan", "--flops", "5e21"}).out,
             ContainsSubstring("Visits worth taking") && ContainsSubstring("chosen"));
  const std::string table = run({"plan", "--flops", "5e21", "--memory", "3GB", "--bits", "4"}).out;
  CHECK_THAT(table, ContainsSubstring("0.437 nats above the choice\n") &&
                        ContainsSubstring("weights take 4.55GB of 3GB\n") &&
                        ContainsSubstring("must gain 0.0037 nats, the law's error\n"));
  CHECK_THAT(run({"plan", "--flops", "5e21", "--least-gain", "0.01"}).out, ContainsSubstring("must gain 0.01 nats\n"));
  check_refused({"plan", "--flops", "5e21", "--memory", "1MB"},
                "fits in 1MB at 16 bits a weight; the least takes 346MB");
  check_refused({"plan", "--flops", "5e21", "--memory", ""}, "--memory must be a size");  // not: no limit
  check_refused({"plan", "--flops", "5e21", "--memory", "3 apples"}, "found '3 apples'");
  check_refused({"plan", "--flops", "nan"}, "training FLOPs must be above 0, found nan");
  check_refused({"plan", "--flops", "1e3"}, "training FLOPs must be at least those of 1 token of 0.3B, ");
  check_refused({"plan", "--flops", "1e21", "--bits", "0"}, "bits a weight");
  check_refused({"plan", "--flops", "1e21", "--experts", "0"}, "--experts must be numbers from 1 to 1000000, found 0");
  check_refused({"plan", "--flops", "1e21", "--law", "chinchilla"}, "--law must be looped-moe");
  check_refused({"plan", "--flops", "1e21", "--ladder", "smal"}, "\"smal\"");
}

TEST_CASE("A ladder of specs is planned with their own parameters", "[tools]") {
  // small-r4: width 320, 12 layers of which 8 are looped, 10 query and 2 key/value heads of 24, 8 of 64 experts of 80
  const double attention = 2.0 * 320 * 240 + 2.0 * 320 * 48;
  const double router = 320.0 * 64;
  const double expert = 3.0 * 320 * 80;
  const json plan = json_of({"plan", "--flops", "1e19", "--ladder", "small-r4", "--experts", "8"});
  CHECK(plan["choice"]["n_active"].get<double>() == Approx(12 * (attention + router + 8 * expert)).epsilon(1e-12));
  CHECK(plan["choice"]["n_loop"].get<double>() == Approx(8 * (attention + router + 8 * expert)).epsilon(1e-12));
  CHECK(plan["choice"]["n_total"].get<double>() == Approx(12 * (attention + router + 64 * expert)).epsilon(1e-12));
  CHECK(plan["choice"]["extrapolated"] == true);  // far below the models that the law was fitted to
}

TEST_CASE("Laws are listed and shown", "[tools]") {
  const auto laws = json::parse(run({"law", "list", "--json"}).out);
  CHECK(laws.size() == 14);
  CHECK_THAT(run({"law", "show", "chinchilla"}).out, ContainsSubstring("L = E + A / N^alpha + B / D^beta"));
  CHECK(json_of({"law", "show", "looped-moe"})["name"] == "looped-moe:bounded-sparsity");
  check_refused({"law", "show", "chinchila"}, "did you mean 'chinchilla'?");
}

TEST_CASE("A fit refuses tables and options by name", "[tools]") {
  check_refused({"fit", sparse, "--form", "chinchilla"}, "has no column 'N'");
  check_refused({"fit", sparse, "--form", "smellt"}, "did you mean 'smelt'?");
  check_refused({"fit", sparse, "--form", "smelt,smelt"}, "twice");
  check_refused({"fit", sparse, "--where", "S>2"}, "no row of");
  check_refused({"fit", sparse, "--where", "S"}, "--where must compare a column");
  check_refused({"fit", sparse, "--where", "S>x"}, "must be a number, found 'x'");
  check_refused({"fit", sparse, "--where", "arch>2"}, "must be a number, found 'baseline'");
  check_refused({"fit", sparse, "--hold-out", "S>2"}, "holds for no row");
  check_refused({"fit", sparse, "--hold-out", "S>0"}, "is left to fit");
  check_refused({"fit", sparse, "--bootstrap", "rows"}, "found 'rows'");
  check_refused({"fit", sparse, "--bootstrap", "rows:0"}, "found \"0\"");
  check_refused({"fit", sparse, "--bootstrap", "leave-out:2:10"}, "fraction left out");
  check_refused({"fit", sparse, "--hold", "alpha=1"}, "has no coefficient 'alpha' to hold");
  check_refused({"fit", sparse, "--delta", "-1"}, "must be above 0, found -1");
  check_refused({"fit", sparse, "--level", "1"}, "--level must lie between 0 and 1");
  check_refused({"fit", sparse, "--loss", "abs"}, "huber, lad or squares, found 'abs'");
  check_refused({"fit", sparse, "--sparsity", "1"}, "--sparsity must be");
  check_refused({"fit", sparse, "--form", "test-time-depth", "--sparsity", ".5"}, "test-time-depth has none");
  check_refused({"fit", sparse + ".none"}, "cannot open the table of runs");
  check_refused({"fit", SMELT_SOURCE_DIR}, "found the folder");

  const smelt_test::temporary_folder folder;
  const auto with = [&](const std::string& text) { return file_with(folder, "runs.csv", text); };
  check_refused({"fit", with("")}, "has no rows");
  check_refused({"fit", with("F,S,D,loss\n")}, "has no rows");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,1e10,3\n2e9,0.9,1e10,2.9\n")},
                "at least as many rows as coefficients, 6; found 2");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,1e10\n")}, "line 2 must have 4 cells, found 3");
  check_refused({"fit", with("F,S,D,loss,loss\n1e9,0.9,1e10,3,3\n")}, "two columns 'loss'");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,\"1e10,3\n")}, "never closed");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,1e10,3\n1e9,0.9,,3\n")}, "line 3: D must be above 0, found ''");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,inf,3\n")}, "D must be finite and above 0, found 'inf'");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.9,0,3\n")}, "line 2: D must be above 0, found 0");
  check_refused({"fit", with("F,S,D,loss\n1e9,1.5,1,3\n")}, "line 2: S must be at least 0 and below 1, found 1.5");
  check_refused({"fit", with("F,S,D,loss\n1e9,0.5,x,3\n")}, "line 2: column 'D' must be a number, found 'x'");

  // a folder that cannot be made is said before the work, and nothing is left behind
  check_refused({"fit", sparse, "--out", with("a file") + "/fits"}, "cannot make the folder");
  check_refused({"fit", sparse, "--out", with("a file")}, "cannot make the folder");
  check_refused({"fit", sparse, "--form", "chinchilla", "--out", (folder.path() / "maps").string()}, "no column 'N'");
  CHECK(smelt_test::names_in(folder.path()) == std::vector<std::string>{"runs.csv"});
  const std::string own = (folder.path() / "own").string();  // a folder of the caller's stays
  std::filesystem::create_directory(own);
  check_refused({"fit", sparse, "--form", "chinchilla", "--out", own}, "no column 'N'");
  CHECK(std::filesystem::exists(own));

  const auto fit = [&](const std::string& text) { return file_with(folder, "fit.json", text); };
  for (const std::string text : {"", "{}", "[1]", R"({"format":"smelt-fit-1","form":"smelt"})",
                                 R"({"format":"smelt-fit-1","form":"none","conventions":{},"provenance":{}})"})
    check_refused({"gain", fit(text), "--base", "a", "--target", "b", "--sparsity", ".9", "--compute", "1e20"}, "");
}

TEST_CASE("Ctrl-C ends a long bootstrap without a trace of files", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  smelt_test::running_tool tool(SMELT_TOOL_PATH, {"fit", sparse, "--group", "arch", "--bootstrap", "rows:200000",
                                                  "--threads", "1", "--out", out});
  REQUIRE(tool.wait_for_file(out, 20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  tool.signal(SIGINT);
  const outcome stopped = tool.wait();
  CHECK(stopped.exit == 130);
  CHECK_THAT(stopped.err, ContainsSubstring("nothing was written"));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("Public tables are fitted in one command each", "[tools][full]") {
  if (const std::string path = public_table("epoch_chinchilla/svg_extracted_data.csv"); !path.empty()) {
    const json j = json_of({"fit", path, "--form", "chinchilla"});
    CHECK(j["groups"]["all"]["rows"] == 245);
    CHECK_THAT(j["provenance"]["columns"]["D"].get<std::string>(), ContainsSubstring("Training FLOP"));
  }
  if (const std::string path = public_table("epoch_chinchilla/epoch_nd_loss.csv"); !path.empty()) {
    const json j = json_of(
        {"fit", path, "--form", "chinchilla", "--where", "keep240=1", "--bootstrap", "numpy:4000", "--seed", "42"});
    const auto& g = j["groups"]["all"];
    CHECK(coefficient(g, "A") == Approx(477.8259).epsilon(1e-6));
    CHECK(coefficient(g, "E") == Approx(1.817218).epsilon(1e-6));
    CHECK(g["objective"].get<double>() == Approx(1.0182740178006e-3).epsilon(1e-11));
    CHECK(g["coefficients"][0]["standard_error"].get<double>() == Approx(124.522).epsilon(1e-3));
    CHECK(g["frontier"]["parameters_exponent"].get<double>() == Approx(.51390).margin(5e-6));
  }
  if (const std::string path = public_table("isodepth_looped/isoflop_minima.csv"); !path.empty())
    CHECK(coefficient(json_of({"fit", path, "--form", "iso-depth"})["groups"]["all"], "phi") ==
          Approx(.4686).margin(5e-5));
}
