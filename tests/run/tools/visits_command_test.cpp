// Does eval visit a trained loop another number of times, and never without saying so?
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <smelt/train/checkpoint.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"
#include "support/synthetic_text.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;

namespace {

class workplace {
 public:
  workplace() {
    std::ofstream text(data());
    for (const smelt::document& d : smelt_test::synthetic_documents(11, 150))
      text << json{{"text", d.text}, {"category", d.category}}.dump() << "\n";
  }
  [[nodiscard]] std::string data() const { return (folder_.path() / "text.jsonl").string(); }
  [[nodiscard]] std::filesystem::path run(const std::string& name) const { return folder_.path() / (name + "-run"); }

  /// Trains a small model whose loop is visited as `visits` says in JSON; no loop when it is empty.
  void train(const std::string& name, const std::string& visits, int steps = 60) const {
    const auto model = folder_.path() / (name + ".json");
    std::ofstream(model) << R"({"vocab": 257, "context": 64, "width": 32, "layers": 4,
      "attention": {"heads": 4, "kv_heads": 2, "head_dim": 8},
      "experts": {"stored": 8, "active": 2, "hidden": 16, "renormalise": true}, "tied_head": true)"
                         << (visits.empty() ? "" : R"(, "loop": {"count": "half", "visits": )" + visits + "}") << "}";
    const outcome o = run_tool({"train", model.string(), "--data", data(), "--tokens", std::to_string(steps * 128),
                                "--sequences", "2", "--out", run(name).string()});
    INFO(o.err);
    REQUIRE(o.exit == 0);
  }
  [[nodiscard]] outcome eval(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> command{"eval", run(name).string(), "--data", data()};
    command.insert(command.end(), more.begin(), more.end());
    return run_tool(command);
  }

 private:
  smelt_test::temporary_folder folder_;
};

}  // namespace

TEST_CASE("a model trained with two visits is evaluated with one, two and three, and labelled", "[tools][visits]") {
  const workplace here;
  here.train("twice", R"({"repeat": 2})", 150);
  const smelt::found_checkpoint saved = smelt::open_newest_checkpoint(here.run("twice"));
  REQUIRE(saved.newest);
  CHECK(saved.newest->state.at("visits") == 2);

  const json plain = json::parse(here.eval("twice", {"--json"}).out);
  CHECK(plain["trained_visits"] == 2);
  CHECK(plain["visits"] == 2);
  CHECK_FALSE(plain.contains("note"));
  CHECK(here.eval("twice", {}).out.find("evaluated with") == std::string::npos);

  std::vector<double> losses;
  for (const int visits : {1, 2, 3}) {
    const std::string number = std::to_string(visits);
    const outcome o = here.eval("twice", {"--visits", number, "--json"});
    INFO(o.err);
    REQUIRE(o.exit == 0);
    const json j = json::parse(o.out);
    CHECK(j["trained_visits"] == 2);
    CHECK(j["visits"] == visits);
    CHECK(j["note"] == "trained with 2 visits, evaluated with " + number);
    losses.push_back(j["validation"]["loss"].get<double>());
    CHECK_THAT(here.eval("twice", {"--visits", number}).out,
               ContainsSubstring("trained with 2 visits, evaluated with " + number));
  }
  CHECK(losses[1] == plain["validation"]["loss"].get<double>());
  // It was trained to be visited twice; other depths still predict, and worse.
  CHECK(losses[0] > losses[1]);
  CHECK(losses[2] > losses[1]);
  for (const double loss : losses) CHECK(loss < 5.5);  // a uniform guess has 5.55
}

TEST_CASE("another number of visits is refused where it means nothing", "[tools][visits]") {
  const workplace here;
  const auto refusal = [&](const std::string& name, const std::string& visits, const std::string& number) {
    if (!std::filesystem::exists(here.run(name))) here.train(name, visits, 2);
    const outcome o = here.eval(name, {"--visits", number});
    CHECK(o.exit == 2);
    return o.err;
  };
  CHECK_THAT(refusal("plain", "", "2"), ContainsSubstring("without a loop"));
  CHECK_THAT(refusal("pair", R"([{"residual": [1, 4]}, {}])", "3"), ContainsSubstring("follow one plan, found 2"));
  CHECK_THAT(refusal("learned", R"([{"learned": true}, {"learned": true}])", "3"),
             ContainsSubstring("a learned coefficient"));
  CHECK_THAT(refusal("twice", R"({"repeat": 2})", "17"),
             ContainsSubstring("--visits must be a whole number from 1 to 16"));
  CHECK_THAT(refusal("twice", "", "0"), ContainsSubstring("from 1 to 16"));
}
