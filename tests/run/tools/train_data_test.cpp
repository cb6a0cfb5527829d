// What does the program say of text that it cannot train on? One line with the cause, what there is and what is needed.
#include <algorithm>
#include <filesystem>
#include <smelt/io/atomic_file.hpp>
#include <smelt/io/token_shard.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"
#include "support/temporary_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace std::string_literals;

namespace {

struct attempt {
  smelt_test::temporary_folder folder;

  explicit attempt(int vocab = 257) {
    smelt::write_file(folder.path() / "model.json", "{\"vocab\": " + std::to_string(vocab) + R"(,
      "context": 32, "width": 16, "layers": 2, "attention": {"heads": 2, "kv_heads": 1, "head_dim": 8},
      "experts": {"stored": 4, "active": 2, "hidden": 8}})");
  }

  [[nodiscard]] smelt_test::outcome with(const std::string& content, const std::string& name = "text.txt") const {
    smelt::write_file(folder.path() / name, content);
    return smelt_test::run_tool({"train", (folder.path() / "model.json").string(), "--data",
                                 (folder.path() / name).string(), "--tokens", "64", "--sequences", "1", "--threads",
                                 "1", "--out", (folder.path() / "run").string()});
  }

  /// The one line with which it is refused; no run may have begun.
  [[nodiscard]] std::string refusal(const std::string& content, const std::string& name = "text.txt") const {
    const smelt_test::outcome end = with(content, name);
    INFO(end.err);
    CHECK(end.exit == 2);
    CHECK(end.out.empty());
    CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 1);
    CHECK(end.err.starts_with("smelt: error: "));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "run" / "log.jsonl"));
    return end.err;
  }
};

}  // namespace

TEST_CASE("too little text is refused with what there is and what is needed", "[tools][train]") {
  const attempt run;
  CHECK_THAT(run.refusal(""), ContainsSubstring("an empty file") && ContainsSubstring("at least 1 byte"));
  CHECK_THAT(run.refusal("x"), ContainsSubstring("validation split is empty") && ContainsSubstring("2 tokens"));
  // A window of 32 needs 33 tokens in the training split; a lone document gives a twentieth to validation.
  CHECK_THAT(run.refusal(std::string(32, 'a')), ContainsSubstring("have 31 tokens, need at least 33"));
  CHECK_THAT(run.refusal(std::string(33, 'a')), ContainsSubstring("have 32 tokens, need at least 33"));
}

TEST_CASE("what is not text is refused with the likely cause", "[tools][train]") {
  const attempt run;
  CHECK_THAT(run.refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), ContainsSubstring("Git LFS"));
  CHECK_THAT(run.refusal("<!DOCTYPE html><html></html>"), ContainsSubstring("HTML page"));
  CHECK_THAT(run.refusal("\xFF\xFEh\0i\0"s), ContainsSubstring("UTF-16"));
  CHECK_THAT(run.refusal("{\"text\": 5}\n", "text.jsonl"), ContainsSubstring("text.jsonl:1"));
}

TEST_CASE("every byte is trainable, and a vocabulary too small for bytes is not", "[tools][train]") {
  std::string bytes;
  for (int i = 0; i < 3'000; ++i) bytes.push_back(static_cast<char>((i * 7 + i / 256) % 256));
  const smelt_test::outcome end = attempt().with(bytes);
  INFO(end.err);
  CHECK(end.exit == 0);
  CHECK_THAT(attempt(256).refusal(bytes), ContainsSubstring("need a vocabulary of 257, the model has 256"));
}

TEST_CASE("token shards of any vocabulary train, resume and evaluate", "[tools][train]") {
  const attempt run(50'257);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 3'000; ++i) tokens.push_back(i % 100 == 99 ? 50'256 : i * 17 % 50'000);
  const std::string shard = (run.folder.path() / "tokens.bin").string();
  smelt::write_token_shard(shard, tokens, 50'257);
  std::vector<std::string> command{
      "train", (run.folder.path() / "model.json").string(), "--data",    shard, "--tokens",    "64",
      "--out", (run.folder.path() / "run").string(),        "--threads", "1",   "--sequences", "1"};
  const smelt_test::outcome trained = smelt_test::run_tool(command);
  INFO(trained.err);
  CHECK(trained.exit == 0);
  command.push_back("--resume");
  CHECK(smelt_test::run_tool(command).exit == 0);
  const smelt_test::outcome evaluated =
      smelt_test::run_tool({"eval", (run.folder.path() / "run").string(), "--data", shard, "--json"});
  INFO(evaluated.err);
  CHECK(evaluated.exit == 0);
  CHECK_THAT(evaluated.out, ContainsSubstring("\"validation\""));

  // The same file is not text of a model that reads bytes.
  const attempt bytes;
  const smelt_test::outcome refused =
      smelt_test::run_tool({"train", (bytes.folder.path() / "model.json").string(), "--data", shard, "--tokens", "64",
                            "--out", (bytes.folder.path() / "run").string()});
  CHECK(refused.exit == 2);
  CHECK_THAT(refused.err, ContainsSubstring("257"));
}
