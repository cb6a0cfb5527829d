#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <smelt/train/log.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"
#include "support/synthetic_text.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;
using smelt_test::text_of;

namespace {

/// A compare command on synthetic text: 12 steps of 4 x 128 tokens.
std::vector<std::string> compare(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  const auto data = folder / "text.jsonl";
  if (!std::filesystem::exists(data)) {
    std::ofstream text(data);
    for (const smelt::document& d : smelt_test::synthetic_documents(4, 200))
      text << json{{"text", d.text}, {"category", d.category}}.dump() << "\n";
  }
  std::vector<std::string> command{"compare",
                                   "--data",
                                   data.string(),
                                   "--tokens",
                                   "6144",
                                   "--length",
                                   "128",
                                   "--sequences",
                                   "4",
                                   "--out",
                                   (folder / "out").string()};
  command.insert(command.end(), {"--validation-tokens", "2048", "--save-every", "6"});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

TEST_CASE("compare trains matched architectures on the same batches and reports", "[tools][compare]") {
  const smelt_test::temporary_folder folder;
  const outcome o = run_tool(compare(folder.path(), {"nano", "nano-smelt"}));
  INFO(o.err);
  REQUIRE(o.exit == 0);
  const auto out = folder.path() / "out";
  CHECK_THAT(o.out, ContainsSubstring("Match of nano-smelt with nano") && ContainsSubstring("Validation loss") &&
                        ContainsSubstring("training FLOPs (log scale)") && ContainsSubstring("report.html"));
  CHECK(o.out.find("Budgets") < o.out.find("Validation loss"));

  const json j = json::parse(text_of(out / "compare.json"));
  REQUIRE(j["models"].size() == 2);
  CHECK(j["models"][1]["match"]["ok"] == true);
  CHECK(j["dtype"] == "fp32");
  CHECK(j["instruction_set"].is_string());
  for (const json& model : j["models"]) {
    CHECK(model["validation"]["loss"].get<double>() < 5.6);
    CHECK(model["validation"]["categories"].size() >= 2);
    CHECK(model["validation_loss_by_flops"].size() >= 12);
    CHECK(model["steps"] == 12);
    CHECK(model["tokens_per_second"].get<double>() > 0);
    const double flops = model["budgets"]["flops"]["train_per_token"].get<double>() * 6'144;
    CHECK(model["validation_loss_by_flops"].back()[0].get<double>() == Approx(flops));
  }
  CHECK(j["models"][0]["visit_balance"].size() == 1);
  CHECK(j["models"][1]["visit_balance"].size() == 2);

  // The same text, seed and order for both.
  const json first = smelt::read_log(out / "nano" / "log.jsonl").front();
  const json second = smelt::read_log(out / "nano-smelt" / "log.jsonl").front();
  CHECK(first["data"] == second["data"]);
  CHECK(first["options"] == second["options"]);

  const std::string html = text_of(out / "report.html");
  for (const char* part :
       {"<svg", "Validation loss", "nats/token", "bits/byte", "bigram entropy", "tolerance", "convention smelt",
        "balance, visit 2", "tokens/s", "smelt compare --data", "Machine: ", "learning_rate", ">cosine<",
        ">dtype of matrix products<", ">fp32<", ">instruction set<", "matrix products: fp32 ("})
    CHECK_THAT(html, ContainsSubstring(part));
  for (const char* outside : {"src=", "href=", "@import", "url(", "https:", "<script"})
    CHECK(html.find(outside) == std::string::npos);
  CHECK(text_of(out / "loss.svg").rfind("<svg xmlns=", 0) == 0);

  // A finished comparison says the same again.
  const outcome again = run_tool(compare(folder.path(), {"nano", "nano-smelt", "--resume", "--json"}));
  REQUIRE(again.exit == 0);
  CHECK(json::parse(again.out)["models"] == j["models"]);
}

TEST_CASE("compare refuses budgets that do not match unless told", "[tools][compare]") {
  const smelt_test::temporary_folder folder;
  const outcome o = run_tool(compare(folder.path(), {"nano", "nano-control"}));
  CHECK(o.exit == 1);
  CHECK_THAT(o.out, ContainsSubstring("BROKEN"));
  CHECK_THAT(o.err,
             ContainsSubstring("smelt: error: the budgets do not match") && ContainsSubstring("--allow-unmatched"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
  CHECK(run_tool(compare(folder.path(), {"nano", "nano-smelt", "--tolerance", "flops=0.1%"})).exit == 1);
  const outcome machine = run_tool(compare(folder.path(), {"nano", "nano-control", "--json"}));
  CHECK(machine.exit == 1);
  const json figures = json::parse(machine.out);
  CHECK(figures["models"][0]["budgets"]["params"]["total"] == 1'746'176);
  CHECK(figures["models"][1]["match"]["ok"] == false);
  CHECK(figures["models"][1]["match"]["params"]["ok"] == false);

  const outcome told = run_tool(compare(folder.path(), {"nano", "nano-control", "--allow-unmatched", "--json"}));
  INFO(told.err);
  REQUIRE(told.exit == 0);
  CHECK(json::parse(told.out)["models"][1]["match"]["ok"] == false);
}

TEST_CASE("compare sets every model against the first", "[tools][compare]") {
  const smelt_test::temporary_folder folder;
  const outcome o = run_tool(compare(folder.path(), {"nano", "nano-smelt", "nano-control", "--allow-unmatched"}));
  INFO(o.err);
  REQUIRE(o.exit == 0);
  CHECK_THAT(o.out, ContainsSubstring("Match of nano-smelt with nano\n") &&
                        ContainsSubstring("Match of nano-control with nano\n") &&
                        ContainsSubstring("nano-smelt, nats/token  difference  bits/byte  nano-control, nats/token  "
                                          "difference  bits/byte\n") &&
                        ContainsSubstring("difference: from nano, nats/token"));
  const auto out = folder.path() / "out";
  const json j = json::parse(text_of(out / "compare.json"));
  REQUIRE(j["models"].size() == 3);
  CHECK(j["models"][1]["match"]["ok"] == true);
  CHECK(j["models"][2]["match"]["ok"] == false);
  const std::string html = text_of(out / "report.html");
  CHECK_THAT(html, ContainsSubstring("<h1>smelt compare: nano, nano-smelt and nano-control</h1>") &&
                       ContainsSubstring("documents that no model was trained on"));
  const auto signed_difference = [&](std::size_t model) {
    const double difference =
        j["models"][model]["validation"]["loss"].get<double>() - j["models"][0]["validation"]["loss"].get<double>();
    char text[32];
    std::snprintf(text, sizeof text, "%+.4f", difference);
    return std::string(text);
  };
  CHECK_THAT(
      html, ContainsSubstring(">" + signed_difference(1) + "<") && ContainsSubstring(">" + signed_difference(2) + "<"));
}

TEST_CASE("compare refuses names that would share a folder, and a single architecture", "[tools][compare]") {
  const smelt_test::temporary_folder folder;
  const outcome twice = run_tool(compare(folder.path(), {"nano", "nano"}));
  CHECK(twice.exit == 2);
  CHECK_THAT(twice.err, ContainsSubstring("\"nano\" twice"));
  const outcome alone = run_tool(compare(folder.path(), {"nano"}));
  CHECK(alone.exit == 2);
  CHECK_THAT(alone.err, ContainsSubstring("at least 2"));
}

TEST_CASE("compare tells what visits learned, wrote back and chose", "[tools][compare][visits]") {
  const smelt_test::temporary_folder folder;
  const auto write = [&](const char* name, const std::string& visits) {
    const auto path = folder.path() / (std::string(name) + ".json");
    std::ofstream(path) << R"({"vocab": 257, "context": 128, "width": 32, "layers": 4,
      "attention": {"heads": 4, "kv_heads": 2, "head_dim": 8},
      "experts": {"stored": 8, "active": 2, "hidden": 16})"
                        << (visits.empty() ? "" : R"(, "loop": {"count": "half", "visits": )" + visits + "}") << "}";
    return path.string();
  };
  const std::string plain = write("plain", "");
  const std::string latent = write("latent", R"([{"compression": 3, "learned": true, "residual": [1, 4]},
                                                 {"learned": true, "active": 1}, {}])");
  const outcome o = run_tool(compare(folder.path(), {plain, latent, "--allow-unmatched"}));
  INFO(o.err);
  REQUIRE(o.exit == 0);
  const auto out = folder.path() / "out";
  const std::string html = text_of(out / "report.html");
  for (const std::string& text : {o.out, html}) {
    CHECK_THAT(text, ContainsSubstring("Learned coefficients") && ContainsSubstring("Writeback, mean over channels") &&
                         ContainsSubstring("receiver 1 (near)") && ContainsSubstring("receiver 3 (far)") &&
                         ContainsSubstring("Experts that consecutive visits share") &&
                         ContainsSubstring("latent, visit 2") && ContainsSubstring("the latent whose chunk holds it"));
    CHECK_THAT(text, !ContainsSubstring("latent, visit 3"));  // it learns nothing
  }
  CHECK_THAT(html, ContainsSubstring("Learned coefficients against tokens") && ContainsSubstring(">Visits<"));

  const json j = json::parse(text_of(out / "compare.json"));
  const json& none = j["models"][0];
  for (const char* list : {"learned_coefficients", "writeback_means", "expert_overlap"}) CHECK(none[list].empty());
  const json& model = j["models"][1];
  REQUIRE(model["learned_coefficients"].size() == 2);
  CHECK(model["learned_coefficients"][0]["first_step"] == 0.25);
  CHECK(model["learned_coefficients"][1]["first_step"] == 1);
  for (const json& coefficient : model["learned_coefficients"]) {
    CHECK(coefficient["by_tokens"].size() == 12);
    CHECK(coefficient["last_step"] != coefficient["first_step"]);
    CHECK(coefficient["by_tokens"].back()[0] == 6'144);
    CHECK(coefficient["by_tokens"].back()[1] == coefficient["last_step"]);
  }
  REQUIRE(model["writeback_means"].size() == 1);
  CHECK(model["writeback_means"][0]["visit"] == 0);
  REQUIRE(model["writeback_means"][0]["means"].size() == 3);
  for (const json& mean : model["writeback_means"][0]["means"]) {
    CHECK(mean.get<double>() == Approx(1).margin(0.2));
    CHECK(mean != 1);
  }
  // Two layers, two pairs of visits.
  REQUIRE(model["expert_overlap"].size() == 4);
  for (const json& overlap : model["expert_overlap"]) {
    CHECK(overlap["chance"] == 0.25);
    CHECK(overlap["share"].get<double>() > 0);
    CHECK(overlap["share"].get<double>() <= 1);
    CHECK(overlap["tokens"].get<std::int64_t>() > 1'000);
  }
  CHECK(model["expert_overlap"][1]["visits"] == json{1, 2});
  // Two tokens in 128 have no latent.
  CHECK(model["expert_overlap"][0]["tokens"] < model["expert_overlap"][1]["tokens"]);

  // A finished comparison finds the same again.
  const outcome again = run_tool(compare(folder.path(), {plain, latent, "--allow-unmatched", "--resume", "--json"}));
  REQUIRE(again.exit == 0);
  CHECK(json::parse(again.out)["models"] == j["models"]);
}
