// Do fit, gain, plan and law say what the library says, and refuse what cannot be answered?
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"

namespace {

using Catch::Matchers::ContainsSubstring;
using smelt_test::outcome;

const std::string grid = SMELT_SOURCE_DIR "/tests/data/law/sparse_grid.csv";

outcome run(const std::vector<std::string>& arguments) {
  return smelt_test::run_tool(arguments);
}

}  // namespace

TEST_CASE("A table of runs gives fits with intervals, and gains from them", "[tools]") {
  const smelt_test::temporary_folder folder;
  const std::string out = (folder.path() / "fits").string();
  const outcome fitted = run({"fit", grid, "--form", "smelt", "--group", "arch", "--bootstrap", "cells:100", "--cell",
                              "cell", "--out", out, "--json"});
  REQUIRE(fitted.exit == 0);
  const auto document = nlohmann::json::parse(fitted.out);
  CHECK(nlohmann::json::parse(smelt_test::text_of(folder.path() / "fits" / "fit.json")) == document);
  CHECK_THAT(smelt_test::text_of(folder.path() / "fits" / "residuals.svg"), ContainsSubstring("<svg"));
  const auto& base = document["groups"]["baseline"];
  CHECK(base["coefficients"][2]["name"] == "E");
  CHECK(base["coefficients"][2]["value"].get<double>() == Approx(1.6216941456887954).epsilon(1e-8));
  CHECK(base["coefficients"][2]["interval"][0].get<double>() < 1.6217);
  CHECK(base["coefficients"][2]["interval"][1].get<double>() > 1.6217);
  CHECK(base["rows"] == 72);
  CHECK(base["bootstrap"]["draws"] == 100);
  CHECK(document["conventions"]["delta"] == 1e-3);
  CHECK(document["provenance"]["columns"]["F"] == "F");

  const outcome gain = run({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--sparsity", "0.95",
                            "--compute", "1e21,1e23", "--convention", "baseline", "--json"});
  REQUIRE(gain.exit == 0);
  const auto gains = nlohmann::json::parse(gain.out)["gains"];
  CHECK(gains[0]["gain"].get<double>() == Approx(0.17376633380190276).epsilon(1e-6));
  CHECK(gains[0]["extrapolated"] == false);
  CHECK(gains[0]["interval"][0].get<double>() < 0.1738);
  CHECK(gains[1]["extrapolated"] == true);

  const outcome nobody = run(
      {"gain", out + "/fit.json", "--base", "base", "--target", "smelt", "--sparsity", "0.95", "--compute", "1e21"});
  CHECK(nobody.exit == 2);
  CHECK_THAT(nobody.err, ContainsSubstring("no group 'base'; it has baseline, smelt"));
  const outcome beyond = run({"gain", out + "/fit.json", "--base", "baseline", "--target", "smelt", "--sparsity",
                              "0.95", "--compute", "1e50", "--convention", "baseline"});
  CHECK(beyond.exit == 2);
  CHECK_THAT(beyond.err, ContainsSubstring("must be above the irreducible loss"));
}

TEST_CASE("A plan under compute and memory is the published one", "[tools]") {
  const outcome plan =
      run({"plan", "--law", "looped-moe", "--flops", "5e21", "--memory", "3GB", "--bits", "4", "--json"});
  REQUIRE(plan.exit == 0);
  const auto document = nlohmann::json::parse(plan.out);
  const auto& choice = document["choice"];
  CHECK(choice["name"] == "1.0B");
  CHECK(choice["experts"] == 8);
  CHECK(choice["visits"] == 2);
  CHECK(choice["loss"].get<double>() == Approx(1.9757).margin(1e-4));
  CHECK(choice["tokens"].get<double>() > 5e11);
  std::size_t chosen = 0;
  for (const auto& c : document["candidates"]) chosen += c.contains("rejected") ? 0u : 1u;
  CHECK(chosen == 1);
  const outcome nothing = run({"plan", "--flops", "5e21", "--memory", "1MB"});
  CHECK(nothing.exit == 2);
  CHECK_THAT(nothing.err, ContainsSubstring("no model of the ladder fits"));
}

TEST_CASE("Laws are listed and shown", "[tools]") {
  const auto laws = nlohmann::json::parse(run({"law", "list", "--json"}).out);
  CHECK(laws.size() == 14);
  CHECK_THAT(run({"law", "show", "chinchilla"}).out, ContainsSubstring("L = E + A / N^alpha + B / D^beta"));
  const outcome typo = run({"law", "show", "chinchila"});
  CHECK(typo.exit == 2);
  CHECK_THAT(typo.err, ContainsSubstring("did you mean 'chinchilla'?"));
}

TEST_CASE("A fit refuses tables and options by name", "[tools]") {
  CHECK_THAT(run({"fit", grid, "--form", "chinchilla"}).err, ContainsSubstring("has no column 'N'"));
  CHECK_THAT(run({"fit", grid, "--where", "S>2"}).err, ContainsSubstring("no row of"));
  CHECK_THAT(run({"fit", grid, "--where", "arch>2"}).err, ContainsSubstring("must be a number, found 'baseline'"));
  CHECK_THAT(run({"fit", grid, "--bootstrap", "rows"}).err, ContainsSubstring("found 'rows'"));
  CHECK_THAT(run({"fit", grid, "--bootstrap", "cells:10"}).err, ContainsSubstring("add --cell"));
  CHECK_THAT(run({"fit", grid, "--hold", "alpha=1"}).err, ContainsSubstring("has no coefficient 'alpha' to hold"));
  CHECK_THAT(run({"fit", grid + ".none"}).err, ContainsSubstring("cannot open the table of runs"));
  const smelt_test::temporary_folder folder;
  const std::string few = (folder.path() / "few.csv").string();
  std::ofstream(few) << "F,S,D,loss\n1e9,0.9,1e10,3\n2e9,0.9,1e10,2.9\n";
  CHECK_THAT(run({"fit", few}).err, ContainsSubstring("at least as many rows as coefficients, 6; found 2"));
}
