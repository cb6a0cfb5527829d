#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;

namespace {

/// The JSON of a command that must succeed.
json json_of(std::vector<std::string> arguments, int exit = 0) {
  arguments.emplace_back("--json");
  const outcome o = run_tool(arguments);
  INFO(o.err);
  REQUIRE(o.exit == exit);
  CHECK(o.err.empty());
  return json::parse(o.out);
}

/// A failure: exit code 2, nothing on standard output, one line on standard error.
std::string refusal(const std::vector<std::string>& arguments) {
  const outcome o = run_tool(arguments);
  CHECK(o.exit == 2);
  CHECK(o.out.empty());
  CHECK(o.err.rfind("smelt: error: ", 0) == 0);
  CHECK(o.err.find('\n') == o.err.size() - 1);
  return o.err;
}

/// OLMoE-1B-7B, whose published file has 6,919,161,856 parameters.
constexpr const char* olmoe = R"({
  "vocab": 50304, "context": 4096, "width": 2048, "layers": 16,
  "attention": {"heads": 16, "kv_heads": 16, "head_dim": 128, "norm": "full_width"},
  "experts": {"stored": 64, "active": 8, "hidden": 1024}
})";

/// Qwen3-30B-A3B, whose training FLOPs two paths of one public trainer print differently.
constexpr const char* qwen3_30b = R"({
  "vocab": 151936, "context": 32768, "width": 2048, "layers": 48,
  "attention": {"heads": 32, "kv_heads": 4, "head_dim": 128, "norm": "per_head", "rotary_base": 1000000},
  "experts": {"stored": 128, "active": 8, "hidden": 768, "renormalise": true}
})";

std::string file(const smelt_test::temporary_folder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path() / name) << text;
  return (folder.path() / name).string();
}

}  // namespace

TEST_CASE("specs lists the presets, as a table and as JSON", "[tools][specs]") {
  const json all = json_of({"specs"});
  std::vector<std::string> names;
  for (const json& s : all) names.push_back(s["name"]);
  for (const char* name : {"nano", "nano-smelt", "micro", "mini", "small", "smelt-200m", "smelt-600m-baseline"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  const outcome text = run_tool({"specs"});
  CHECK(text.exit == 0);
  for (const std::string& name : names) CHECK_THAT(text.out, ContainsSubstring("  " + name + " "));
  // Tables by group, each with its caption; the ablation's rows among them.
  CHECK(names.size() > 80);
  for (const json& s : all) CHECK_THAT(text.out, ContainsSubstring(s["group"].get<std::string>() + "\n"));
  CHECK_THAT(text.out, ContainsSubstring("  micro-latentloop-conv ") && ContainsSubstring("c2,conv,own+1 "));
  for (const char* name : {"micro-half-active", "nano-loop-3-learned"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
}

TEST_CASE("a preset's name takes a number of visits", "[tools][specs]") {
  const json b = json_of({"budget", "small-r4"});
  CHECK(b["name"] == "small-r4");
  CHECK(b["spec"]["loop"]["first"] == 2);
  CHECK(b["spec"]["loop"]["count"] == 8);
  CHECK(b["spec"]["loop"]["visits"][0]["times"] == 4);
  CHECK(b["params"]["total"] == json_of({"budget", "small"})["params"]["total"]);
  CHECK(b["sparsity"]["control"] == "small-control");
  CHECK(json_of({"budget", "smelt-200m-baseline-r16"})["spec"]["loop"]["visits"][0]["times"] == 16);
  const auto refused = [](const std::string& name, const char* why) {
    CHECK_THAT(refusal({"budget", name}), ContainsSubstring("\"" + name + "\"") && ContainsSubstring(why));
  };
  refused("small-r17", "visits must be from 2 to 16, found 17");
  refused("small-r1", "visits must be from 2 to 16, found 1");
  refused("small-r99999999999999999999", "visits must be from 2 to 16, found 99999999999999999999");
  refused("nano-r4", "nano must have at least 5 layers, so that 2 enter and 2 leave the loop, found 4");
  refused("small-smelt-r4", "small-smelt must have no loop of its own, found one");
  for (const char* name : {"small-r", "small-r2x", "smal-r2"}) refused(name, "the nearest presets are");
}

TEST_CASE("budget prints the published figures of a spec file to the integer", "[tools][budget]") {
  const smelt_test::temporary_folder folder;
  const json b = json_of({"budget", file(folder, "olmoe.json", olmoe)});
  CHECK(b["name"] == "olmoe");
  CHECK(b["params"]["total"] == 6'919'161'856);
  CHECK(b["params"]["active"] == 1'282'017'280);
  CHECK(b["params"]["active_without_input_table"] == 1'178'994'688);
  CHECK(b["params"]["non_embedding"] == 6'713'116'672);
  CHECK(b["params"]["stored"] == 6'919'161'856);
  CHECK(b["kv_cache"]["bytes_per_token"] == 131'072);
  CHECK(b["kv_cache"]["bytes_at_context"] == 131'072LL * 4'096);
  CHECK(b["flops"]["convention"] == "smelt");
  CHECK(b["flops"]["train_per_token"] == 3 * b["flops"]["forward_per_token"].get<std::int64_t>());
  CHECK(b["sparsity"]["s"].get<double>() > 0.8);
  CHECK(b["sparsity"]["n_eq"].get<double>() > 0);

  const outcome text = run_tool({"budget", (folder.path() / "olmoe.json").string()});
  CHECK(text.exit == 0);
  CHECK_THAT(text.out, ContainsSubstring("6,919,161,856") && ContainsSubstring("1,178,994,688") &&
                           ContainsSubstring("convention smelt, context 4,096"));
}

TEST_CASE("budget tables give every row a unit and describe every architecture", "[tools][budget]") {
  const smelt_test::temporary_folder folder;
  const std::string padded = file(folder, "padded.json", R"({
    "vocab": 50257, "padded_vocab": 50304, "context": 64, "width": 64, "layers": 2,
    "attention": {"heads": 4, "head_dim": 16}, "experts": {"stored": 8, "active": 2, "hidden": 32}})");
  const std::string dense = file(folder, "dense.json", R"({
    "vocab": 257, "context": 64, "width": 64, "layers": 2, "dense_layers": 2, "dense_hidden": 96,
    "attention": {"heads": 4, "head_dim": 16}})");
  const outcome o = run_tool({"budget", padded, "--against", dense});
  CHECK_THAT(o.out, ContainsSubstring("2 active, vocabulary 50,257 padded to 50,304\n") &&
                        ContainsSubstring("dense layers of 96, vocabulary 257\n"));

  // Between the rule under the headings and the first note, each row has its name, two figures and a unit.
  const std::vector<std::string> units{"parameters", "FLOP/token", "B", "KiB", "MiB", "%"};
  std::istringstream lines(o.out);
  std::string line;
  while (std::getline(lines, line) && line.rfind("  ---", 0) != 0) {
  }
  const std::size_t unit_column = line.rfind("  ---") + 2;
  int rows = 0;
  for (; std::getline(lines, line) && line.rfind("  padded: ", 0) != 0; ++rows) {
    INFO(line);
    REQUIRE(line.size() > unit_column);
    CHECK(std::count(units.begin(), units.end(), line.substr(unit_column)) == 1);
  }
  CHECK(rows == 13);
}

TEST_CASE("budget counts by a named convention at a given context", "[tools][budget]") {
  const smelt_test::temporary_folder folder;
  const std::string qwen = file(folder, "qwen.json", qwen3_30b);
  const json one = json_of({"budget", qwen, "--convention", "torchtitan", "--context", "8192"});
  CHECK(one["flops"]["train_per_token"] == 37'578'559'488);
  CHECK(one["flops"]["context"] == 8'192);
  const json other = json_of({"budget", qwen, "--convention", "torchtitan-every-parameter", "--context", "8k"}, 0);
  CHECK(other["flops"]["context"] == 8'000);
  const json all = json_of({"budget", qwen, "--convention", "torchtitan-every-parameter", "--context", "8192"});
  CHECK(all["flops"]["train_per_token"] == 192'856'412'160);
  CHECK(json_of({"budget", qwen, "--kv-bytes", "1"})["kv_cache"]["bytes_per_token"] == 49'152);

  // A convention that does not know routed experts gives no number.
  const json uncovered = json_of({"budget", qwen, "--convention", "megatron-72"});
  CHECK(uncovered["flops"]["covered"] == false);
  CHECK(uncovered["flops"]["train_per_token"].is_null());
  CHECK_THAT(run_tool({"budget", qwen, "--convention", "megatron-72"}).out, ContainsSubstring("not counted"));
}

TEST_CASE("budget checks one architecture against another", "[tools][budget]") {
  const json good = json_of({"budget", "nano-smelt", "--against", "nano"});
  CHECK(good["match"]["ok"] == true);
  for (const char* metric : {"flops", "params", "kv_cache"}) {
    const json& row = good["match"][metric];
    CHECK(row["ok"] == true);
    CHECK(row["ratio"].get<double>() ==
          Approx(row["actual"].get<double>() / row["expected"].get<double>()).epsilon(1e-6));
    CHECK(row["tolerance"].get<double>() == Approx(std::string(metric) == "params" ? 0.01 : 0.04));
  }
  CHECK(good["match"]["flops"]["actual"] == good["flops"]["train_per_token"]);
  CHECK(good["match"]["flops"]["expected"] == good["against"]["flops"]["train_per_token"]);
  CHECK(good["match"]["params"]["actual"] == good["params"]["non_embedding"]);
  CHECK(good["match"]["kv_cache"]["actual"] == good["kv_cache"]["bytes_per_token"]);

  // The same pair at a tolerance below its error, then two models that are far apart: exit 1 and the same figures.
  const json tight = json_of({"budget", "nano-smelt", "--against", "nano", "--tolerance", "flops=0.1%"}, 1);
  CHECK(tight["match"]["ok"] == false);
  CHECK(tight["match"]["flops"]["ok"] == false);
  CHECK(tight["match"]["kv_cache"]["ok"] == true);
  CHECK(tight["match"]["flops"]["actual"] == good["match"]["flops"]["actual"]);
  const outcome far = run_tool({"budget", "micro", "--against", "nano"});
  CHECK(far.exit == 1);
  CHECK_THAT(far.out, ContainsSubstring("BROKEN") && ContainsSubstring("tolerance"));

  const json itself = json_of({"budget", "nano", "--against", "nano", "--tolerance", "flops=0%,params=0%,kv=0%"});
  CHECK(itself["match"]["ok"] == true);
}

TEST_CASE("budget counts what single visits keep", "[tools][budget]") {
  const json b = json_of({"budget", "micro-latentloop-conv"});
  const std::int64_t width = b["spec"]["width"];
  CHECK(b["params"]["encoders"] == 2 * width);
  CHECK(b["params"]["writebacks"] == 2 * width);
  CHECK(b["params"]["coefficients"] == 0);
  CHECK(json_of({"budget", "micro-loop-3-learned"})["params"]["coefficients"] == 3);
  const json half = json_of({"budget", "micro-half-stream"});
  const std::int64_t h = half["spec"]["width"];
  CHECK(half["params"]["projections"] == 2 * h * (h / 2));
  CHECK(half["flops"]["visit_projections"] == 2 * h * h * half["flops"]["context"].get<std::int64_t>());
  CHECK_THAT(run_tool({"budget", "micro-half-stream"}).out, ContainsSubstring("  kept by single visits "));
  CHECK_THAT(run_tool({"budget", "micro-half-stream"}).out,
             ContainsSubstring("visited 2 times by h1/2+1: 12 executed"));
  CHECK(run_tool({"budget", "micro"}).out.find("single visits") == std::string::npos);
}

TEST_CASE("every preset has the budgets of the one it is a partner of, as far as the program asks", "[tools][budget]") {
  int partners = 0;
  for (const json& s : json_of({"specs"})) {
    const std::string name = s["name"], base = s["partner_of"];
    if (base.empty()) continue;
    INFO(name);
    const json match = json_of({"budget", name, "--against", base})["match"];
    CHECK(match["ok"] == true);
    ++partners;
  }
  CHECK(partners > 70);
  // A tolerance that is asked for counts as it is.
  json_of({"budget", "nano-latentloop", "--against", "nano", "--tolerance", "kv=4%"}, 1);
}

TEST_CASE("sparsity is measured against the control", "[tools][budget]") {
  const json own = json_of({"budget", "nano-control"});
  CHECK(own["sparsity"]["s"].get<double>() == Approx(0).margin(1e-12));
  CHECK(own["sparsity"]["control"] == "nano-control");
  const json other = json_of({"budget", "nano", "--control", "nano"});
  CHECK(other["sparsity"]["control"] == "nano");
  CHECK(other["sparsity"]["s"].get<double>() == Approx(0).margin(1e-12));
  CHECK(json_of({"budget", "micro-s97"})["sparsity"]["s"].get<double>() == Approx(0.97).margin(0.005));
}

TEST_CASE("match solves for a partner that budget then accepts", "[tools][match]") {
  const smelt_test::temporary_folder folder;
  const outcome found = run_tool({"match", "nano", "--loop", "middle:2", "--json"});
  REQUIRE(found.exit == 0);
  const json j = json::parse(found.out);
  CHECK(j["found"] == true);
  CHECK(j["match"]["ok"] == true);
  CHECK(j["spec"]["loop"]["visits"]["repeat"] == 2);
  CHECK(j["spec"]["width"] < 128);
  const json checked = json_of({"budget", file(folder, "partner.json", found.out), "--against", "nano"});
  CHECK(checked["match"] == j["match"]);
  CHECK(checked["spec"] == j["spec"]);
}

TEST_CASE("match takes plans of visits and gives the training of equal FLOPs", "[tools][match]") {
  const json j = json_of({"match", "smelt-200m-baseline", "--loop", "middle:c2,own+1", "--tolerance",
                          "flops=1%,params=1%,kv=1%", "--width-multiple", "8", "--tokens", "40G"});
  CHECK(j["found"] == true);
  const json& first = j["spec"]["loop"]["visits"][0];
  CHECK(first["compression"] == 2);
  CHECK(first["own_attention"] == true);
  CHECK(first["writeback"] == "scaled");
  const json& training = j["training_at_equal_flops"];
  CHECK(training["base_tokens"] == 40'000'000'000);
  // Tokens x FLOPs a token are the base's, to a token.
  const double spent = training["tokens"].get<double>() * j["match"]["flops"]["actual"].get<double>();
  CHECK(spent == Approx(40e9 * j["match"]["flops"]["expected"].get<double>()).epsilon(1e-8));
  CHECK(training["tokens"].get<double>() == Approx(40e9 * training["tokens_ratio"].get<double>()).epsilon(1e-8));

  const json without = json_of({"match", "micro", "--loop", "middle:h1/2+1"})["training_at_equal_flops"];
  CHECK(without.contains("tokens_ratio"));
  CHECK_FALSE(without.contains("tokens"));
  CHECK_THAT(
      run_tool({"match", "micro", "--loop", "middle:2", "--tokens", "1M"}).out,
      ContainsSubstring("Training at equal total FLOPs: ") && ContainsSubstring(" for 1,000,000; steps likewise"));
  // What a plan asks of the sizes is kept beside what the caller asks: of 4 and of 6 is of 12.
  const json quarter = json_of({"match", "mini", "--loop", "middle:f1/4,1/2+1", "--hidden-multiple", "6"});
  CHECK(quarter["spec"]["experts"]["hidden"].get<int>() % 12 == 0);
  // The words of the rules, for plans that cannot be.
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:h1/3+1"}), ContainsSubstring("[smelt-S034]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:k99+1"}), ContainsSubstring("[smelt-S032]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:c1000+1"}), ContainsSubstring("[smelt-S028]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:0,learned+1"}), ContainsSubstring("[smelt-S035]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:1/0+1"}), ContainsSubstring("[smelt-S029]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:c2,convolution+1"}),
             ContainsSubstring("tokens a latent") && ContainsSubstring("\"convolution\""));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", "--tokens", "0"}), ContainsSubstring("--tokens"));
}

TEST_CASE("the examples of match work", "[tools][match]") {
  std::istringstream help(run_tool({"match", "--help"}).out);
  int tried = 0;
  for (std::string line; std::getline(help, line);) {
    if (line.rfind("  smelt match micro ", 0) != 0) continue;
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word && arguments.size() < 5;) arguments.push_back(word);
    REQUIRE(arguments.size() == 5);
    INFO(line);
    CHECK(run_tool({"match", arguments[2], arguments[3], arguments[4]}).exit == 0);
    ++tried;
  }
  CHECK(tried == 8);
}

TEST_CASE("match says which budget cannot be met and shows the nearest", "[tools][match]") {
  const json j = json_of({"match", "nano", "--loop", "middle:2", "--vary", "width"}, 1);
  CHECK(j["found"] == false);
  CHECK(j["match"]["ok"] == false);
  CHECK_THAT(j["reason"].get<std::string>(), ContainsSubstring("[smelt-M00") && ContainsSubstring("nearest"));
  for (const char* held : {"heads", "kv_heads", "head_dim"})
    CHECK(j["spec"]["attention"][held] == json_of({"budget", "nano"})["spec"]["attention"][held]);
  // For people the sizes and figures are tables; the sentence under them has the budget and the constraint.
  const outcome text = run_tool({"match", "nano", "--loop", "middle:2", "--vary", "width"});
  CHECK(text.exit == 1);
  CHECK_THAT(text.out, ContainsSubstring("Match of nearest with nano") && ContainsSubstring("BROKEN") &&
                           ContainsSubstring("\nno partner: [smelt-M003] match: ") &&
                           ContainsSubstring("(neither the number of KV heads nor the head size may vary)\n"));
  CHECK(text.out.find("nearest candidate") == std::string::npos);
  // A multiple beyond what is searched is named, too; the base's own spec is not to blame.
  CHECK_THAT(run_tool({"match", "nano", "--loop", "middle:2", "--experts-multiple", "1000"}).out,
             ContainsSubstring("no partner: [smelt-M") && ContainsSubstring("1000"));
  CHECK_THAT(run_tool({"match", "nano", "--loop", "middle:2", "--width-multiple", "4096"}).out,
             ContainsSubstring("no partner: [smelt-M001]") && ContainsSubstring("the width is a multiple of 4096"));
  const outcome header = run_tool({"match", "nano", "--loop", "middle:2", "--vary", "width", "--header", "pair"});
  CHECK(header.exit == 1);
  CHECK(header.out.empty());
}

TEST_CASE("match prints a header that compiles and checks itself", "[tools][match]") {
  if (std::system("c++ --version > /dev/null 2>&1") != 0) {
    WARN("no compiler called c++; the header was not compiled");
    return;
  }
  const smelt_test::temporary_folder folder;
  const std::string compile = std::string("c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I ") + SMELT_SOURCE_DIR +
                              "/include -include " + (folder.path() / "pair.hpp").string() + " -x c++ ";
  const std::string user = file(folder, "user.cpp", "static_assert(pair::visits == 3 && pair_base::visits == 1);\n");
  const outcome header = run_tool({"match", "micro", "--loop", "2+3:3", "--tolerance", "params=2%", "--vary",
                                   "width,experts,heads,kv_heads,head_dim", "--header", "pair"});
  REQUIRE(header.exit == 0);
  CHECK_THAT(header.out, ContainsSubstring("`smelt match micro --loop 2+3:3 --tolerance params=2% --vary "
                                           "width,experts,heads,kv_heads,head_dim --header pair`."));
  const std::string path = file(folder, "pair.hpp", header.out);
  CHECK(std::system((compile + user).c_str()) == 0);

  // Every field of a plan can be written as C++.
  const outcome plans =
      run_tool({"match", "mini", "--loop", "middle:c2,softmax,normalised,chunk,own,k3,f1/2,h1/2,1/4,learned+1/2,x2+1",
                "--header", "pair", "--tolerance", "kv=10%,flops=10%,params=3%"});
  REQUIRE(plans.exit == 0);
  CHECK_THAT(plans.out, ContainsSubstring(".encoder = smelt::encoder_kind::softmax") && ContainsSubstring("}, 2)"));
  file(folder, "pair.hpp", plans.out);
  const std::string four = file(folder, "four.cpp", "static_assert(pair::visits == 4 && pair::compression == 2);\n");
  CHECK(std::system((compile + four).c_str()) == 0);

  // The check inside is real: another number of experts stops the compiler.
  std::string broken = header.out;
  const auto stored = broken.rfind(".stored = ") + 10;
  broken.replace(stored, broken.find(',', stored) - stored, "400");
  file(folder, "pair.hpp", broken);
  CHECK(std::system((compile + user + " 2> /dev/null").c_str()) != 0);
}

TEST_CASE("wrong input is refused in one line that names it", "[tools]") {
  const smelt_test::temporary_folder folder;
  CHECK_THAT(refusal({"budget", "naon"}), ContainsSubstring("\"naon\"") && ContainsSubstring("nano"));
  CHECK_THAT(refusal({}), ContainsSubstring("subcommand"));
  CHECK_THAT(refusal({"budgets", "nano"}), ContainsSubstring("\"budgets\"; did you mean \"budget\"?"));
  CHECK_THAT(refusal({"budget"}), ContainsSubstring("SPEC"));
  CHECK_THAT(refusal({"budget", "nano", "--contxt", "9"}), ContainsSubstring("--contxt"));
  CHECK_THAT(refusal({"budget", "nano", "--context", "0"}), ContainsSubstring("--context must be a whole number"));
  CHECK_THAT(refusal({"budget", "nano", "--context", "3G"}),
             ContainsSubstring("2147483647") && ContainsSubstring("3,000"));
  CHECK_THAT(refusal({"budget", "nano", "--convention", "papr"}), ContainsSubstring("did you mean \"paper\""));
  CHECK_THAT(refusal({"budget", "nano", "--against", "micro", "--tolerance", "flop=1%"}),
             ContainsSubstring("\"flop\""));
  CHECK_THAT(refusal({"budget", "nano", "--tolerance", "flops=1%"}), ContainsSubstring("--against"));
  CHECK_THAT(refusal({"budget", "nano", "--kv-bytes", "65"}), ContainsSubstring("--kv-bytes"));
  CHECK_THAT(refusal({"budget", folder.path().string()}), ContainsSubstring("folder"));
  CHECK_THAT(refusal({"budget", file(folder, "bad.json", "{\"vocab\": 10}")}), ContainsSubstring("[smelt-S003]"));
  CHECK_THAT(refusal({"budget", file(folder, "typo.json", "{\"vocabulary\": 10}")}), ContainsSubstring("vocabulary"));
  CHECK_THAT(refusal({"budget", file(folder, "html.json", "<html>\n</html>")}), ContainsSubstring("HTML page"));
  CHECK_THAT(refusal({"match", "nano"}), ContainsSubstring("--loop"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle"}), ContainsSubstring("no colon"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2,"}), ContainsSubstring("no word of a plan"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "3+2:2"}), ContainsSubstring("[smelt-S024]"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle+9:2"}), ContainsSubstring("(found 9, limit 4)"));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", "--vary", "depth"}), ContainsSubstring("\"depth\""));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", "--header", "2x"}), ContainsSubstring("\"2x\""));
  CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", "--header", "x", "--json"}), ContainsSubstring("choose"));
  for (const char* taken : {"class", "int", "xor", "std", "smelt", "char8_t"})
    CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", "--header", taken}),
               ContainsSubstring("found \"" + std::string(taken) + "\", which is taken"));
  CHECK_THAT(refusal({"budget", "nano", "--threads", "0"}), ContainsSubstring("--threads"));
  // 2^32 + 1 is not one thread.
  for (const char* threads : {"4097", "4294967297", "1e18"})
    CHECK_THAT(refusal({"budget", "nano", "--threads", threads}),
               ContainsSubstring("--threads must be a whole number from 1 to 4096"));
  for (const char* option : {"--width-multiple", "--hidden-multiple", "--head-dim-multiple", "--experts-multiple"})
    for (const char* value : {"0", "65537", "4294967297"})
      CHECK_THAT(refusal({"match", "nano", "--loop", "middle:2", option, value}),
                 ContainsSubstring(std::string(option) + " must be a whole number from 1 to 65536"));
}

TEST_CASE("of an option given twice the last one counts", "[tools]") {
  const json b = json_of({"budget", "nano", "--context", "64", "--context", "128"});
  CHECK(b["flops"]["context"] == 128);
  CHECK(json_of({"budget", "nano", "--convention", "no-such", "--convention", "paper"})["flops"]["convention"] ==
        "paper");
  const json free = json_of({"match", "nano", "--loop", "middle:9", "--loop", "middle:2", "--vary", "width", "--vary",
                             "experts,heads,kv_heads,head_dim"});
  CHECK(free["found"] == true);
}

TEST_CASE("a figure that does not fit in 64 bits is an error", "[tools][budget]") {
  const smelt_test::temporary_folder folder;
  const std::string huge = file(folder, "huge.json", R"({
    "vocab": 2000000000, "context": 1000000000, "width": 2000000000, "layers": 256,
    "attention": {"heads": 1, "head_dim": 2}, "experts": {"stored": 1000, "active": 1, "hidden": 2000000000}})");
  CHECK_THAT(refusal({"budget", huge}), ContainsSubstring("does not fit in 64 bits"));
}

TEST_CASE("help has examples and succeeds; output that cannot be written does not", "[tools]") {
  for (const std::string command :
       {"specs", "budget", "match", "train", "eval", "compare", "probe", "probe causality", "info", "bench", "fit",
        "gain", "plan", "law", "law list", "law show", "law frontier", "law downstream", "law paired"}) {
    INFO(command);
    std::istringstream words(command + " --help");
    const outcome help = run_tool({std::istream_iterator<std::string>(words), {}});
    CHECK(help.exit == 0);
    CHECK_THAT(help.out, ContainsSubstring("Examples:\n  smelt " + command));
    CHECK_THAT(help.out, ContainsSubstring("--json, --threads N and --seed N"));
  }
  // A mistake is answered with the command whose help has the answer.
  CHECK_THAT(run_tool({"train", "nano"}).err, ContainsSubstring("(see smelt train --help)"));
  CHECK_THAT(run_tool({"law"}).err, ContainsSubstring("(see smelt law --help)"));
  CHECK_THAT(run_tool({"law", "paired"}).err, ContainsSubstring("(see smelt law paired --help)"));
  CHECK(run_tool({"--help"}).exit == 0);
  CHECK_THAT(run_tool({"--version"}).out, ContainsSubstring("smelt "));
  for (const std::string command :
       {"specs", "budget nano", "match nano --loop middle:2", "--help", "match --help", "--version"})
    CHECK(std::system((SMELT_TOOL_PATH " " + command + " > /dev/full 2> /dev/null").c_str()) == 2 << 8);
}
