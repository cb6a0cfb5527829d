// Does a run that is killed again and again end where an uninterrupted one does? With the real program.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <smelt/io/atomic_file.hpp>
#include <smelt/train/checkpoint.hpp>
#include <smelt/train/log.hpp>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "support/run_tool.hpp"
#include "support/synthetic_text.hpp"
#include "support/temporary_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using smelt_test::outcome;
using smelt_test::running_tool;

namespace {

constexpr std::int64_t steps = 150;

/// A text, a small looped model, and the command that trains one on the other.
struct job {
  smelt_test::temporary_folder folder;

  job() {
    std::string text;
    for (const smelt::document& d : smelt_test::synthetic_documents(9, 120)) text += d.text + "\n";
    smelt::write_file(folder.path() / "text.txt", text);
    smelt::write_file(folder.path() / "model.json", R"({
      "vocab": 257, "context": 32, "width": 24, "layers": 4,
      "attention": {"heads": 4, "kv_heads": 2, "head_dim": 6},
      "experts": {"stored": 6, "active": 2, "hidden": 16, "renormalise": true, "balance_bias": true},
      "loop": {"first": "middle", "count": "half", "visits": {"repeat": 2}}})");
  }

  [[nodiscard]] std::vector<std::string> command(const std::string& out, bool resume) const {
    std::vector<std::string> arguments{"train",          (folder.path() / "model.json").string(),
                                       "--data",         (folder.path() / "text.txt").string(),
                                       "--tokens",       std::to_string(steps * 2 * 2 * 32),
                                       "--sequences",    "2",
                                       "--accumulation", "2",
                                       "--save-every",   "4",
                                       "--threads",      resume ? "2" : "1",
                                       "--seed",         "7",
                                       "--out",          (folder.path() / out).string()};
    if (resume) arguments.push_back("--resume");
    return arguments;
  }
};

/// What a log says of the numbers of each step, and of nothing that depends on the clock.
std::map<std::int64_t, nlohmann::json> steps_of_log(const std::filesystem::path& run) {
  std::map<std::int64_t, nlohmann::json> found;
  for (nlohmann::json line : smelt::read_log(run / "log.jsonl")) {
    if (line.value("kind", "") != "step") continue;
    line.erase("seconds");
    line.erase("tokens_per_second");
    const auto step = line.at("step").get<std::int64_t>();
    INFO("step " << step);
    CHECK(found.emplace(step, line).second);
  }
  return found;
}

std::string final_line(const std::filesystem::path& run) {
  std::string last;
  int finals = 0;
  for (const nlohmann::json& line : smelt::read_log(run / "log.jsonl"))
    if (line.value("kind", "") == "final") {
      last = line.dump();
      ++finals;
    }
  CHECK(finals == 1);
  return last;
}

/// Newest whole checkpoint's step; -1 when there is none yet.
std::int64_t newest(const std::filesystem::path& run) {
  const smelt::found_checkpoint found = smelt::open_newest_checkpoint(run);
  CHECK(found.skipped.empty());
  return found.newest ? found.newest->step : -1;
}

void kill_and_resume(int least_kills, std::uint32_t seed) {
  const job work;
  const auto begin = std::chrono::steady_clock::now();
  const outcome whole = smelt_test::run_tool(work.command("whole", false));
  const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  INFO(whole.err);
  REQUIRE(whole.exit == 0);

  const auto run = work.folder.path() / "killed";
  std::mt19937 random(seed);
  int kills = 0;
  std::int64_t saved = -1;
  // Lives from nothing at all to a few times their share of the run. A life that saved nothing lengthens the next ones:
  // on a machine where starting takes as long as a share, the run would otherwise never end.
  std::int64_t most = taken.count() * 3 / (2 * least_kills);
  for (;;) {
    running_tool tool(SMELT_TOOL_PATH, work.command("killed", true));
    std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<std::int64_t>(random()) % (most + 1)));
    // Enough kills, and one that a resume from a checkpoint followed: from then on the run may end.
    if (kills < least_kills || saved < 4) tool.signal(SIGKILL);
    const outcome end = tool.wait();
    INFO(end.err);
    if (end.exit == 0 && kills > least_kills / 2) break;
    if (end.exit == 0) {  // lives were too long: the whole run was slow for a while
      std::filesystem::remove_all(run);
      kills = 0;
      saved = -1;
      most = most / 2 + 1;
      continue;
    }
    REQUIRE(end.exit == 128 + SIGKILL);
    ++kills;
    // Nothing that was saved before is lost.
    const std::int64_t now = newest(run);
    CHECK(now >= saved);
    if (now == saved) most += most / 4 + 1;
    saved = now;
  }
  const smelt::found_checkpoint expected = smelt::open_newest_checkpoint(work.folder.path() / "whole");
  const smelt::found_checkpoint got = smelt::open_newest_checkpoint(run);
  REQUIRE(expected.newest.has_value());
  REQUIRE(got.newest.has_value());
  CHECK(expected.newest->step == steps);
  CHECK(got.newest->step == steps);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    CHECK((smelt_test::text_of(got.newest->folder / name) == smelt_test::text_of(expected.newest->folder / name)));

  // The log has every step once, with the same numbers, and one final evaluation.
  const auto told = steps_of_log(run);
  CHECK(told.size() == static_cast<std::size_t>(steps));
  CHECK((told == steps_of_log(work.folder.path() / "whole")));
  CHECK(final_line(run) == final_line(work.folder.path() / "whole"));
}

}  // namespace

TEST_CASE("a run killed at any moment and resumed ends with the bits of an uninterrupted one", "[tools][train]") {
  kill_and_resume(6, 1);
}

TEST_CASE("dozens of kills change no bit of a run's end", "[tools][train][full]") {
  for (const std::uint32_t seed : {2U, 3U}) kill_and_resume(30, seed);
}
