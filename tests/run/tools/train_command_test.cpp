#include <algorithm>
#include <csignal>
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

/// A folder with a text of several categories and a small looped architecture.
class workplace {
 public:
  workplace() {
    std::ofstream text(data());
    for (const smelt::document& d : smelt_test::synthetic_documents(11, 150))
      text << json{{"text", d.text}, {"category", d.category}}.dump() << "\n";
    std::ofstream(model()) << R"({"vocab": 257, "context": 64, "width": 32, "layers": 4,
      "attention": {"heads": 4, "kv_heads": 2, "head_dim": 8},
      "experts": {"stored": 8, "active": 2, "hidden": 16, "renormalise": true},
      "tied_head": true, "loop": {"count": "half", "visits": {"repeat": 2}}})";
  }

  [[nodiscard]] std::filesystem::path path() const { return folder_.path(); }
  [[nodiscard]] std::string data() const { return (path() / "text.jsonl").string(); }
  [[nodiscard]] std::string model() const { return (path() / "tiny.json").string(); }
  [[nodiscard]] std::string in(const std::string& name) const { return (path() / name).string(); }

  /// A training command of `steps` steps of 2 x 64 tokens.
  [[nodiscard]] std::vector<std::string> train(const std::string& out, int steps,
                                               std::vector<std::string> more = {}) const {
    std::vector<std::string> command{"train",       model(), "--data", data(),  "--tokens", std::to_string(steps * 128),
                                     "--sequences", "2",     "--out",  in(out), "--seed",   "5"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

 private:
  smelt_test::temporary_folder folder_;
};

/// The newest checkpoint of a run.
std::filesystem::path newest(const std::filesystem::path& run) {
  std::filesystem::path last;
  for (const auto& item : std::filesystem::directory_iterator(run))
    if (item.path().filename().string().rfind("step-", 0) == 0) last = (std::max)(last, item.path());
  return last;
}

/// A failure: exit code 2 and one line of error.
std::string refusal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
  const outcome o = run_tool(arguments, environment);
  CHECK(o.exit == 2);
  const auto at = o.err.rfind("smelt: error: ");
  REQUIRE(at != std::string::npos);
  CHECK(o.err.find('\n', at) == o.err.size() - 1);
  return o.err.substr(at);
}

}  // namespace

TEST_CASE("a trained run has a log, checkpoints and losses that eval finds again", "[tools][train]") {
  const workplace here;
  const outcome trained = run_tool(here.train("run", 60, {"--json", "--save-every", "25", "--keep", "2"}));
  INFO(trained.err);
  REQUIRE(trained.exit == 0);
  const json result = json::parse(trained.out);
  CHECK(result["finished"] == true);
  CHECK(result["steps"] == 60);
  const double loss = result["validation"]["loss"];
  CHECK(loss < 4.0);  // a uniform guess has 5.55
  CHECK(result["validation"]["bits_per_byte"].get<double>() > loss / std::log(2.0));
  CHECK(result["validation"]["categories"].size() >= 2);
  CHECK_THAT(trained.err, ContainsSubstring("step 60/60") && ContainsSubstring("tokens/s  ETA"));

  const auto run = here.path() / "run";
  CHECK(newest(run).filename() == "step-00000060");
  CHECK(std::filesystem::exists(run / "step-00000050"));
  CHECK_FALSE(std::filesystem::exists(run / "step-00000025"));
  const std::vector<json> log = smelt::read_log(run / "log.jsonl");
  CHECK(std::ranges::count(log, "step", [](const json& l) { return l["kind"]; }) == 60);
  CHECK(std::ranges::count(log, "final", [](const json& l) { return l["kind"]; }) == 1);
  CHECK(std::ranges::count(log, "validation", [](const json& l) { return l["kind"]; }) >= 12);
  const auto step = std::ranges::find(log, "step", [](const json& l) { return l["kind"]; });
  for (const char* field : {"tokens", "flops", "loss", "balance", "z", "visit_balance", "visit_coefficient",
                            "learning_rate", "gradient_norm", "skipped", "tokens_per_second"})
    CHECK(step->contains(field));
  CHECK((*step)["visit_balance"].size() == 2);

  const outcome evaluated = run_tool({"eval", here.in("run"), "--data", here.data(), "--json"});
  INFO(evaluated.err);
  REQUIRE(evaluated.exit == 0);
  const json found = json::parse(evaluated.out);
  CHECK(found["step"] == 60);
  CHECK(found["split"] == "validation");
  CHECK(found["validation"] == result["validation"]);

  // Another text is read whole; an older checkpoint may be named.
  std::ofstream(here.path() / "other.txt") << std::string(400, 'a') << "bcdefgh";
  const outcome other = run_tool({"eval", (run / "step-00000050").string(), "--data", here.in("other.txt"), "--json"});
  INFO(other.err);
  REQUIRE(other.exit == 0);
  CHECK(json::parse(other.out)["split"] == "all");
  CHECK(json::parse(other.out)["step"] == 50);
  CHECK_THAT(run_tool({"eval", here.in("run"), "--data", here.data()}).out, ContainsSubstring("validation split"));

  // So is a text of so few documents that none of them would validate.
  std::ofstream(here.path() / "few.jsonl") << R"({"text": ")" << std::string(300, 'a') << "\"}\n"
                                           << R"({"text": ")" << std::string(300, 'b') << "\"}\n";
  const outcome few = run_tool({"eval", here.in("run"), "--data", here.in("few.jsonl"), "--json"});
  INFO(few.err);
  REQUIRE(few.exit == 0);
  CHECK(json::parse(few.out)["split"] == "all");
  std::ofstream(here.path() / "none.jsonl") << R"({"text": ""})" << "\n";
  const outcome none = run_tool({"eval", here.in("run"), "--data", here.in("none.jsonl")});
  CHECK(none.exit == 2);
  CHECK_THAT(none.err, ContainsSubstring("no text"));
}

TEST_CASE("a run stopped by Ctrl-C and resumed is the run that never stopped", "[tools][train]") {
  const workplace here;
  REQUIRE(run_tool(here.train("whole", 400, {"--threads", "1"})).exit == 0);
  {
    smelt_test::running_tool tool(SMELT_TOOL_PATH, here.train("parts", 400, {"--threads", "2"}));
    REQUIRE(tool.wait_for_file(here.path() / "parts" / "step-00000040", 120));
    tool.signal(SIGINT);
    const outcome stopped = tool.wait();
    INFO(stopped.err);
    // A fast machine may finish before the signal arrives; the resumed run is then trivially the same.
    CHECK((stopped.exit == 130 || stopped.exit == 0));
    if (stopped.exit == 130) CHECK_THAT(stopped.err, ContainsSubstring("stopped after step"));
    if (stopped.exit == 130) CHECK(stopped.out.empty());
  }
  CHECK_THAT(refusal(here.train("parts", 400)),
             ContainsSubstring("already holds a run") && ContainsSubstring("--resume"));
  CHECK_THAT(refusal(here.train("parts", 400, {"--resume", "--learning-rate", "0.1"})),
             ContainsSubstring("these differ: options/learning_rate"));
  const outcome resumed = run_tool(here.train("parts", 400, {"--resume", "--threads", "3"}));
  INFO(resumed.err);
  REQUIRE(resumed.exit == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("resuming after step"));

  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    CHECK(text_of(here.path() / "whole" / "step-00000400" / file) ==
          text_of(here.path() / "parts" / "step-00000400" / file));
  const auto timeless = [&](const char* run) {
    std::vector<json> lines = smelt::read_log(here.path() / run / "log.jsonl");
    for (json& line : lines)
      for (const char* timing : {"seconds", "tokens_per_second", "threads"}) line.erase(timing);
    return lines;
  };
  CHECK(timeless("whole") == timeless("parts"));

  // A finished run resumes to its own result.
  const outcome again = run_tool(here.train("parts", 400, {"--resume"}));
  CHECK(again.exit == 0);
  CHECK(again.out == resumed.out);
}

TEST_CASE("the type of products is the user's choice, logged, and kept by a run", "[tools][train]") {
  const workplace here;
  CHECK_THAT(refusal(here.train("none", 2, {"--dtype", "fp16"})),
             ContainsSubstring("--dtype must be one of fp32, bf16, auto; found \"fp16\""));
  CHECK_THAT(refusal(here.train("none", 2, {"--instruction-set", "avx3"})), ContainsSubstring("avx3"));
  const outcome chosen = run_tool(here.train("auto", 4, {"--dtype", "auto", "--json"}));
  INFO(chosen.err);
  REQUIRE(chosen.exit == 0);
  const json result = json::parse(chosen.out);
  const json header = smelt::read_log(here.path() / "auto" / "log.jsonl").front();
  CHECK(header["dtype"] == result["dtype"]);
  CHECK(header["instruction_set"] == result["instruction_set"]);
  const bool bf16 = result["dtype"] == "bf16";
  if (!bf16) {
    CHECK_THAT(refusal(here.train("none", 2, {"--dtype", "bf16"})), ContainsSubstring("needs the instruction set"));
    return;
  }
  CHECK_THAT(refusal(here.train("auto", 4, {"--resume"})),
             ContainsSubstring("these differ: dtype: the checkpoint has \"bf16\", this run has \"fp32\""));
  // Either type evaluates what the other has trained.
  const auto evaluated = [&](const char* dtype) {
    const outcome o = run_tool({"eval", here.in("auto"), "--data", here.data(), "--json", "--dtype", dtype});
    INFO(o.err);
    REQUIRE(o.exit == 0);
    const json found = json::parse(o.out);
    CHECK(found["trained_dtype"] == "bf16");
    CHECK(found["dtype"] == dtype);
    return found["validation"]["loss"].get<double>();
  };
  CHECK(evaluated("bf16") == result["validation"]["loss"].get<double>());
  CHECK(evaluated("fp32") == Approx(evaluated("bf16")).margin(1e-2));
  CHECK(evaluated("fp32") != evaluated("bf16"));
}

TEST_CASE("a killed run goes on from its last save", "[tools][train]") {
  const workplace here;
  {
    smelt_test::running_tool tool(SMELT_TOOL_PATH, here.train("run", 4'000, {"--save-every", "20"}));
    REQUIRE(tool.wait_for_file(here.path() / "run" / "step-00000040", 120));
    tool.signal(SIGKILL);
    CHECK(tool.wait().exit == 128 + SIGKILL);
  }
  const std::string saved = newest(here.path() / "run").filename().string();
  smelt_test::running_tool tool(SMELT_TOOL_PATH, here.train("run", 4'000, {"--save-every", "20", "--resume"}));
  const int next = std::stoi(saved.substr(5)) + 20;
  std::string name = std::to_string(next);
  name.insert(0, 8 - name.size(), '0');
  CHECK(tool.wait_for_file(here.path() / "run" / ("step-" + name), 120));
  tool.signal(SIGTERM);
  const outcome stopped = tool.wait();
  CHECK(stopped.exit == 130);
  CHECK_THAT(stopped.err, ContainsSubstring("resuming after step " + std::to_string(next - 20)));
}

TEST_CASE("every signal that asks a run to end has it saved", "[tools][train]") {
  const workplace here;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = "run" + std::to_string(signal);
    smelt_test::running_tool tool(SMELT_TOOL_PATH, here.train(name, 40'000, {"--save-every", "20"}));
    REQUIRE(tool.wait_for_file(here.path() / name / "step-00000020", 120));
    tool.signal(signal);
    const outcome stopped = tool.wait();
    INFO(signal << ": " << stopped.err);
    CHECK(stopped.exit == 130);
    CHECK_THAT(stopped.err, ContainsSubstring("stopped after step") && ContainsSubstring("; saved\n"));
  }
  // Whoever has hang-ups ignored (nohup) means to run on.
  smelt_test::running_tool tool("/bin/sh", [&] {
    std::string command = "trap '' HUP; exec '" + std::string(SMELT_TOOL_PATH) + "'";
    for (const std::string& word : here.train("kept", 40'000, {"--save-every", "20"})) command += " '" + word + "'";
    return std::vector<std::string>{"-c", command};
  }());
  REQUIRE(tool.wait_for_file(here.path() / "kept" / "step-00000020", 120));
  tool.signal(SIGHUP);
  CHECK(tool.wait_for_file(here.path() / "kept" / "step-00000060", 120));
  tool.signal(SIGTERM);
  CHECK(tool.wait().exit == 130);
}

TEST_CASE("training refuses what cannot work, before any work", "[tools][train]") {
  const workplace here;
  const auto train = [&](const std::string& spec, std::vector<std::string> more) {
    std::vector<std::string> command{"train", spec, "--out", here.in("none")};
    if (std::ranges::find(more, "--tokens") == more.end()) more.insert(more.end(), {"--tokens", "1k"});
    command.insert(command.end(), more.begin(), more.end());
    return refusal(command, {"SMELT_CACHE=" + here.in("empty-cache")});
  };
  CHECK_THAT(train("nano", {"--data", "builtin"}),
             ContainsSubstring("scripts/corpus small") && ContainsSubstring("empty-cache/corpus/small.jsonl"));
  CHECK_THAT(train("nano", {"--data", here.in("absent.txt")}), ContainsSubstring("absent.txt"));
  CHECK_THAT(train("nano", {"--data", here.data(), "--tokens", "lots"}), ContainsSubstring("\"lots\""));
  CHECK_THAT(train("nano", {"--data", here.data(), "--length", "257"}), ContainsSubstring("context of nano, 256"));
  CHECK_THAT(train("nano", {"--data", here.data(), "--learning-rate", "-1"}), ContainsSubstring("learning_rate"));
  for (const char* schedule : {"cosin", "COSINE", "1", ""})
    CHECK_THAT(
        train("nano", {"--data", here.data(), "--schedule", schedule}),
        ContainsSubstring("--schedule must be one of cosine, wsd, constant; found \"" + std::string(schedule) + "\""));
  for (const char* option :
       {"--learning-rate", "--warmup", "--weight-decay", "--clip", "--balance", "--z", "--validation-fraction"})
    for (const char* value : {"1e400", "nan", "0x1p-3", "half"})
      CHECK_THAT(
          train("nano", {"--data", here.data(), option, value}),
          ContainsSubstring(std::string(option) + " must be a number, such as 0.003 or 1e-3; found \"" + value + "\""));
  CHECK_THAT(train("nano", {"--data", here.data(), "--validation-fraction", "1"}),
             ContainsSubstring("--validation-fraction"));
  CHECK_THAT(train("smelt-600m", {"--data", here.data(), "--sequences", "100k"}), ContainsSubstring("memory"));

  std::ofstream(here.path() / "vocab.json") << R"({"vocab": 256, "context": 64, "width": 32, "layers": 2,
    "attention": {"heads": 4, "head_dim": 8}, "experts": {"stored": 4, "active": 2, "hidden": 16}})";
  CHECK_THAT(train(here.in("vocab.json"), {"--data", here.data()}),
             ContainsSubstring("need a vocabulary of 257, the model has 256"));
  std::ofstream(here.path() / "gelu.json") << R"({"vocab": 257, "context": 64, "width": 32, "layers": 2, "ffn": "gelu",
    "attention": {"heads": 4, "head_dim": 8}, "experts": {"stored": 4, "active": 2, "hidden": 16}})";
  CHECK_THAT(train(here.in("gelu.json"), {"--data", here.data()}), ContainsSubstring("ffn"));

  std::ofstream(here.path() / "little.txt") << std::string(2'000, 'x');  // 100 bytes validate, fewer than a window
  CHECK_THAT(train("nano", {"--data", here.in("little.txt")}), ContainsSubstring("too little validation text"));
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}}) {
    std::ofstream(here.path() / "short.txt") << std::string(bytes, 'x');
    CHECK_THAT(train(here.model(), {"--data", here.in("short.txt")}), ContainsSubstring("need"));
  }
  CHECK_THAT(refusal({"eval", here.in("none"), "--data", here.data()}), ContainsSubstring("no folder"));
  std::filesystem::create_directory(here.path() / "none");
  CHECK_THAT(refusal({"eval", here.in("none"), "--data", here.data()}), ContainsSubstring("no whole checkpoint"));
  CHECK(smelt_test::names_in(here.path() / "none").empty());
}
