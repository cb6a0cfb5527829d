#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/io/spec_json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;

namespace {

constexpr const char* tiny = R"({"vocab": 257, "context": 64, "width": 32, "layers": 4,
  "attention": {"heads": 4, "kv_heads": 2, "head_dim": 8},
  "experts": {"stored": 8, "active": 2, "hidden": 16, "shared_hidden": 8, "renormalise": true},
  "dense_layers": 1, "dense_hidden": 40, "tied_head": true,
  "loop": {"first": 1, "count": 2, "visits": {"repeat": 2}}})";

class workplace {
 public:
  workplace() { std::ofstream(model()) << tiny; }
  [[nodiscard]] std::string model() const { return (folder_.path() / "tiny.json").string(); }
  [[nodiscard]] std::string in(const std::string& name) const { return (folder_.path() / name).string(); }

  /// `smelt bench` of the small model on one thread.
  [[nodiscard]] outcome bench(std::vector<std::string> more = {}) const {
    std::vector<std::string> command{"bench", model(), "--sequences", "2", "--steps", "4", "--threads", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return run_tool(command);
  }

  [[nodiscard]] json measured(std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    const outcome o = bench(std::move(more));
    INFO(o.err);
    REQUIRE(o.exit == 0);
    return json::parse(o.out);
  }

 private:
  smelt_test::temporary_folder folder_;
};

double sum(const json& ops, const char* field) {
  double total = 0;
  for (const json& op : ops) total += op.at(field).get<double>();
  return total;
}

bool has_op(const json& ops, const std::string& name) {
  for (const json& op : ops)
    if (op.at("op") == name) return true;
  return false;
}

std::string refusal(const outcome& o) {
  CHECK(o.exit == 2);
  CHECK(o.out.empty());
  CHECK(o.err.rfind("smelt: error: ", 0) == 0);
  return o.err;
}

}  // namespace

TEST_CASE("a benchmark counts the operations that the budget counts, op by op", "[tools][bench]") {
  const workplace here;
  const smelt::flop_count budget =
      smelt::flops(smelt::spec_from_json(json::parse(tiny)), smelt::conventions::smelt, 64);
  for (const bool forward : {false, true}) {
    const json j = here.measured(forward ? std::vector<std::string>{"--forward"} : std::vector<std::string>{});
    CHECK(j["tokens_per_step"] == 128);
    CHECK(j["steps"] == 4);
    CHECK(j["threads"] == 1);
    CHECK(j["dtype"] == "fp32");
    CHECK(j["flop_per_step"] == 2.0 * static_cast<double>(forward ? budget.forward : budget.train));
    // Products that no op is asked for twice: the gates of experts and the head have no other sums.
    CHECK(sum(j["ops"], "flop") == Approx(j["flop_per_step"].get<double>()).epsilon(1e-9));
    CHECK(sum(j["ops"], "share") == Approx(1));
    CHECK(j["ops"].back()["op"] == "other");
    CHECK(has_op(j["ops"], "experts_backward") == !forward);
    CHECK(has_op(j["ops"], "adamw") == !forward);
    CHECK(has_op(j["ops"], "attention"));
    const double rate = j["tokens_per_second"].get<double>();
    CHECK(rate > 0);
    CHECK(j["best_tokens_per_second"].get<double>() >= rate);
    CHECK(j["flop_per_second"].get<double>() * j["seconds_per_step"].get<double>() ==
          Approx(j["flop_per_step"].get<double>()));
    CHECK(j["of_peak"].get<double>() > 0);
    CHECK(j["of_peak"].get<double>() < 1);
    CHECK(j["allocations_per_step"].get<double>() < 100);
    for (std::size_t i = 1; i + 1 < j["ops"].size(); ++i)
      CHECK(j["ops"][i]["seconds"].get<double>() <= j["ops"][i - 1]["seconds"].get<double>());
  }
}

TEST_CASE("prompts and tokens one by one are measured like steps", "[tools][bench]") {
  const workplace here;
  const auto measured = [&](std::vector<std::string> how) {
    std::vector<std::string> command{"bench", here.model(), "--steps", "3", "--threads", "1", "--json"};
    command.insert(command.end(), how.begin(), how.end());
    const outcome o = run_tool(command);
    INFO(o.err);
    REQUIRE(o.exit == 0);
    return json::parse(o.out);
  };
  const json prompt = measured({"--prefill", "40"});
  CHECK(prompt["pass"] == "prefill");
  CHECK(prompt["tokens_per_step"] == 40);
  CHECK(prompt["prefill_tokens_per_second"] == prompt["tokens_per_second"]);
  CHECK(has_op(prompt["ops"], "attention_cached"));
  CHECK(!has_op(prompt["ops"], "adamw"));
  // All tokens go through the layers, one through the head.
  const smelt::flop_count budget =
      smelt::flops(smelt::spec_from_json(json::parse(tiny)), smelt::conventions::smelt, 40);
  CHECK(prompt["flop_per_step"].get<double>() < static_cast<double>(budget.forward));
  CHECK(prompt["flop_per_step"].get<double>() > 0.6 * static_cast<double>(budget.forward - budget.head));

  const json one_by_one = measured({"--decode", "7"});
  CHECK(one_by_one["pass"] == "decode");
  CHECK(one_by_one["tokens_per_step"] == 7);
  CHECK(one_by_one["decode_tokens_per_second"] == one_by_one["tokens_per_second"]);
  CHECK(one_by_one["allocations_per_step"] == 0);
  CHECK(one_by_one["of_memory"].get<double>() > 0);
  // Every layer: the query, the key and value, the output. Then the dense layer and three that are visited as often as
  // the loop says, with the router, two experts and the shared one each. Then the head.
  const double attention = 32 * 32 + 2 * 16 * 32 + 32 * 32;
  const double routed = 8 * 32 + 3 * 32 * (2 * 16 + 8);
  CHECK(one_by_one["weight_bytes_per_token"] == 4 * (6 * attention + 3 * 32 * 40 + 5 * routed + 257 * 32));
  CHECK(one_by_one["weight_bytes_per_second"].get<double>() ==
        Approx(one_by_one["weight_bytes_per_token"].get<double>() * one_by_one["tokens_per_second"].get<double>()));
  // What each token is multiplied by is what the clocks count, but for attention itself.
  CHECK(one_by_one["flop_per_step"].get<double>() > 7 * one_by_one["weight_bytes_per_token"].get<double>() / 2);

  const outcome o = run_tool({"bench", here.model(), "--decode", "7", "--steps", "2", "--threads", "1"});
  CHECK_THAT(o.out, ContainsSubstring("token by token") && ContainsSubstring("GB/s of weights"));
  for (const char* how : {"--prefill", "--decode"})
    CHECK_THAT(refusal(run_tool({"bench", here.model(), how, "65"})),
               ContainsSubstring(how) && ContainsSubstring("at most the context") && ContainsSubstring("found 65"));
  CHECK_THAT(refusal(run_tool({"bench", here.model(), "--decode", "3", "--prefill", "3"})),
             ContainsSubstring("--decode") && ContainsSubstring("--prefill"));
  CHECK_THAT(refusal(run_tool({"bench", here.model(), "--decode", "3", "--sequences", "2"})),
             ContainsSubstring("--decode") && ContainsSubstring("--sequences"));
}

TEST_CASE("two sides of a benchmark take turns", "[tools][bench]") {
  const workplace here;
  const json j = here.measured({"--against", "nano", "--length", "16", "--steps", "3"});
  CHECK(j["spec"].get<std::string>().find("tiny") != std::string::npos);
  CHECK(j["against"]["spec"] == "nano");
  CHECK(j["against"]["tokens_per_step"] == 32);
  CHECK(j["against"]["steps"] == 3);
  CHECK(j["against"]["flop_per_step"].get<double>() > j["flop_per_step"].get<double>());
  CHECK(j["tokens_per_second_ratio"].get<double>() > 0);
  CHECK(j["flop_per_second_ratio"].get<double>() > 0);
  const json threads = here.measured({"--against-threads", "2"});
  CHECK(threads["against"]["threads"] == 2);
  CHECK(threads["tokens_per_second_ratio"].get<double>() == Approx(threads["flop_per_second_ratio"].get<double>()));
}

TEST_CASE("the instruction set of a benchmark is the one that was asked for", "[tools][bench]") {
  const workplace here;
  const json info = json::parse(run_tool({"info", "--json"}).out);
  int tried = 0;
  for (const json& set : info["instruction_sets"]) {
    const std::string name = set["name"];
    if (set["build"] == true && set["machine"] == true) {
      const bool bf16 = name == "avx512_bf16";
      const json j = here.measured({"--instruction-set", name, "--dtype", bf16 ? "bf16" : "fp32", "--steps", "1"});
      CHECK(j["instruction_set"] == name);
      CHECK(j["dtype"] == (bf16 ? "bf16" : "fp32"));
      ++tried;
    } else {
      CHECK_THAT(refusal(here.bench({"--instruction-set", name})), ContainsSubstring(name));
    }
  }
  CHECK(tried > 0);
}

TEST_CASE("the time of every op is shown as a table and drawn", "[tools][bench]") {
  const workplace here;
  const std::string drawing = here.in("step.svg");
  const outcome plain = here.bench();
  CHECK_THAT(plain.out, ContainsSubstring("tokens/s") && ContainsSubstring("of the peak"));
  CHECK_THAT(plain.out, !ContainsSubstring("experts_backward"));
  for (const json& op : here.measured({"--breakdown"})["ops"]) {
    CHECK(op["limit"].is_string() == (op["op"] != "other"));
    if (op["op"] != "other") CHECK(op["of_limit"].get<double>() > 0);
  }
  const outcome o = here.bench({"--breakdown", "--svg", drawing});
  INFO(o.err);
  REQUIRE(o.exit == 0);
  CHECK_THAT(o.out, ContainsSubstring("experts_backward") && ContainsSubstring("other") && ContainsSubstring("█"));
  const std::string svg = smelt_test::text_of(drawing);
  CHECK(svg.rfind("<svg ", 0) == 0);
  CHECK_THAT(svg, ContainsSubstring("experts_backward") && ContainsSubstring("</svg>"));
}

TEST_CASE("a benchmark says what it cannot measure", "[tools][bench]") {
  const workplace here;
  CHECK_THAT(refusal(here.bench({"--length", "65"})),
             ContainsSubstring("at most the context") && ContainsSubstring("65"));
  CHECK_THAT(refusal(here.bench({"--steps", "0"})), ContainsSubstring("--steps") && ContainsSubstring("\"0\""));
  CHECK_THAT(refusal(here.bench({"--dtype", "fp64"})), ContainsSubstring("\"fp64\""));
  CHECK_THAT(refusal(here.bench({"--against-dtype", "fp64"})), ContainsSubstring("\"fp64\""));
  CHECK_THAT(refusal(here.bench({"--instruction-set", "mmx"})), ContainsSubstring("mmx"));
  CHECK_THAT(refusal(here.bench({"--against", "nanoo"})), ContainsSubstring("nano"));
  const std::string nowhere = here.in("no/such/folder.svg");
  CHECK_THAT(refusal(here.bench({"--json", "--svg", nowhere})),
             ContainsSubstring("--svg") && ContainsSubstring(nowhere));
}
