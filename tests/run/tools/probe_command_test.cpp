#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../../../tools/smelt/probe_report.hpp"
#include "catch.hpp"
#include "support/run_tool.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;
namespace tool = smelt::tool;

namespace {

/// A small model whose first visit is compressed.
void write_model(const std::filesystem::path& path) {
  std::ofstream(path) << R"({"vocab": 61, "context": 40, "width": 32, "layers": 4,
    "attention": {"heads": 4, "kv_heads": 2, "head_dim": 8},
    "experts": {"stored": 8, "active": 2, "hidden": 16},
    "loop": {"count": "half", "visits": [{"compression": 3, "encoder": "conv"}, {}]}})";
}

}  // namespace

TEST_CASE("probe causality says what it compared, and that nothing leaks", "[tools][probe]") {
  const smelt_test::temporary_folder folder;
  const std::string model = (folder.path() / "three.json").string();
  write_model(model);
  const outcome o = run_tool({"probe", "causality", model, "--json", "--threads", "2"});
  INFO(o.err);
  REQUIRE(o.exit == 0);
  const json j = json::parse(o.out);
  CHECK(j["name"] == "three");
  CHECK(j["lengths"] == json{1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33});
  CHECK(j["causal"] == true);
  CHECK(j["leak"].is_null());
  for (const char* count : {"comparisons", "positions", "expert_choices", "changed_positions"})
    CHECK(j[count].get<std::int64_t>() > 100);

  const outcome few = run_tool({"probe", "causality", model, "--lengths", "2-4,40", "--seed", "3"});
  INFO(few.err);
  REQUIRE(few.exit == 0);
  CHECK_THAT(few.out, ContainsSubstring("Causality of three") && ContainsSubstring("2-4,40") &&
                          ContainsSubstring("causal: every prefix has the same bits") && ContainsSubstring("seed 3"));
}

TEST_CASE("probe refuses what it cannot probe", "[tools][probe]") {
  const smelt_test::temporary_folder folder;
  const std::string model = (folder.path() / "three.json").string();
  write_model(model);
  for (const char* lengths : {"0", "41", "5-3", "x", "1,,2", "", "3-"}) {
    INFO(lengths);
    const outcome o = run_tool({"probe", "causality", model, "--lengths=" + std::string(lengths)});
    if (std::string(lengths).empty()) continue;
    CHECK(o.exit == 2);
    CHECK_THAT(o.err, ContainsSubstring("--lengths must be a whole number from"));
  }
  CHECK(run_tool({"probe", "causality", "no-such-model"}).exit == 2);
  CHECK(run_tool({"probe"}).exit == 2);
  CHECK(run_tool({"probe", "nothing"}).exit == 2);
}

TEST_CASE("a leak is told with its place and size", "[tools][probe]") {
  tool::causality_probe p{
      .name = "leaky", .lengths = {1, 2, 3, 7}, .report = {}, .dtype = "fp32", .instruction_set = {}};
  p.report.changed = 9;
  p.report.leak = {.length = 7,
                   .prefix = 3,
                   .document = 2,
                   .sequence = 1,
                   .position = 2,
                   .what = smelt::leaked::routing,
                   .layer = 5,
                   .visit = 1,
                   .hidden_difference = HUGE_VAL,
                   .logit_difference = 2.5e-7};
  CHECK(tool::verdict(p.report) ==
        "LEAK: the routing of layer 5 in visit 2 at position 2 depends on tokens from position 3 on, of 7; a document "
        "begins at position 2");
  const std::string text = tool::to_text(tool::causality_table(p));
  CHECK_THAT(text, ContainsSubstring("2.5e-07") && ContainsSubstring("1-3,7"));
  const json j = json::parse(tool::to_json(p).dump());
  CHECK(j["causal"] == false);
  CHECK(j["leak"]["what"] == "routing");
  CHECK(j["leak"]["layer"] == 5);
  CHECK(j["leak"]["logit_difference"] == 2.5e-7);
  CHECK(j["leak"]["hidden_difference"].is_null());
  p.report.leak->what = smelt::leaked::logits;
  p.report.leak->document = 0;
  CHECK(tool::verdict(p.report) == "LEAK: the logits at position 2 depend on tokens from position 3 on, of 7");
  p.report = {};
  CHECK_THAT(tool::verdict(p.report), ContainsSubstring("blind"));
  CHECK(tool::to_json(p)["causal"] == false);
}
