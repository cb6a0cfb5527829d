// Does every save survive whatever interrupts the next one?
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <smelt/io/atomic_file.hpp>
#include <smelt/train/checkpoint.hpp>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "support/small_disk.hpp"
#include "support/temporary_folder.hpp"

namespace fs = std::filesystem;
namespace st = smelt::safetensors;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::names_in;
using smelt_test::temporary_folder;

namespace {

/// Weights and moments whose every value follows from the step, so that a checkpoint can be told from any other.
struct sample {
  std::int64_t step;
  std::vector<float> weight, m, v;

  explicit sample(std::int64_t step_, std::size_t n = 3'000) : step(step_), weight(n), m(n), v(n) {
    for (std::size_t i = 0; i < n; ++i) {
      weight[i] = static_cast<float>(step) + static_cast<float>(i) / 4096.0F;
      m[i] = -weight[i];
      v[i] = weight[i] * 0.5F;
    }
  }
  [[nodiscard]] std::vector<st::tensor> weights() const {
    return {{"model.embed_tokens.weight", {static_cast<std::int64_t>(weight.size())}, weight}};
  }
  [[nodiscard]] std::vector<st::tensor> optimizer() const {
    const auto n = static_cast<std::int64_t>(weight.size());
    return {{"m.model.embed_tokens.weight", {n}, m}, {"v.model.embed_tokens.weight", {n}, v}};
  }
  [[nodiscard]] json state() const {
    return {{"step", step},
            {"seed", 18446744073709551615U},
            {"cursor", step * 7},
            {"lr", 0.1 + 1e-17},
            {"tokenizer", "bytes"}};
  }
  auto save(const smelt::run_folder& run, std::int64_t keep_last = 3) const {
    return smelt::save_checkpoint(run, step, weights(), optimizer(), state(), keep_last);
  }
  [[nodiscard]] bool equals(const smelt::checkpoint& other) const {
    const auto same = [](const st::file& file, const std::vector<st::tensor>& tensors) {
      if (file.entries().size() != tensors.size()) return false;
      for (const auto& t : tensors) {
        const auto raw = file.bytes(file.at(t.name));
        if (raw.size() != t.values.size_bytes()) return false;
        if (std::memcmp(raw.data(), t.values.data(), raw.size()) != 0) return false;
      }
      return true;
    };
    return other.step == step && other.state == state() && same(other.weights, weights()) &&
           same(other.optimizer, optimizer());
  }
};

std::vector<std::int64_t> steps_in(const fs::path& run) {
  std::vector<std::int64_t> steps;
  for (const auto& place : smelt::find_checkpoints(run)) steps.push_back(place.step);
  return steps;
}

using steps = std::vector<std::int64_t>;

void overwrite(const fs::path& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at)).put(value);
}

}  // namespace

TEST_CASE("a checkpoint gives back exactly what was saved", "[train][checkpoint]") {
  const temporary_folder folder;
  const auto dir = folder.path() / "runs" / "first";
  CHECK(smelt::find_checkpoints(dir).empty());
  CHECK_FALSE(smelt::open_newest_checkpoint(dir).newest.has_value());
  const smelt::run_folder run(dir);
  const sample saved(1200);
  const auto result = saved.save(run);
  CHECK(result.warnings.empty());
  CHECK(result.folder == dir / "step-00001200");
  CHECK(names_in(result.folder) ==
        std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"});
  CHECK(names_in(dir) == std::vector<std::string>{".lock", "step-00001200"});
  const auto found = smelt::open_newest_checkpoint(dir);
  REQUIRE(found.newest.has_value());
  CHECK(found.skipped.empty());
  CHECK(saved.equals(*found.newest));
  // The same input gives the same bytes.
  const auto before = smelt::read_file(result.folder / "state.json");
  CHECK(saved.save(run).warnings.empty());
  CHECK(smelt::read_file(result.folder / "state.json") == before);
}

TEST_CASE("the newest come first and the last few are kept", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  for (const std::int64_t step : {0, 5, 40, 123'456'789, 1'000'000'000}) sample(step).save(run, 10);
  CHECK(steps_in(run.path()) == steps{1'000'000'000, 123'456'789, 40, 5, 0});
  sample(1'000'000'001).save(run, 2);
  CHECK(steps_in(run.path()) == steps{1'000'000'001, 1'000'000'000});
  sample(1'000'000'002).save(run, 1);
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-1000000002"});
  CHECK_THROWS_WITH(sample(-1).save(run), ContainsSubstring("found -1"));
  CHECK_THROWS_WITH(sample(7).save(run, 0), ContainsSubstring("found 0"));
}

TEST_CASE("names that are not exactly a checkpoint's are left alone", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  const std::vector<std::string> strangers{
      "step-12", "step-000000012", "step-0000012x", "step--0000001", "step-", "notes", "step-99999999999999999999"};
  for (const auto& name : strangers) fs::create_directory(run.path() / name);
  smelt::write_file(run.path() / "step-00000009", "a file, not a folder");
  CHECK(smelt::find_checkpoints(run.path()).empty());
  sample(1).save(run, 1);
  sample(2).save(run, 1);
  CHECK(steps_in(run.path()) == steps{2});
  for (const auto& name : strangers) CHECK(fs::exists(run.path() / name));
}

TEST_CASE("saving a step again replaces it", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1).save(run);
  sample(2, 10).save(run);
  sample(2, 20).save(run);
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001", "step-00000002"});
  const auto found = smelt::open_newest_checkpoint(run.path());
  REQUIRE(found.newest.has_value());
  CHECK(sample(2, 20).equals(*found.newest));
  // A damaged one is replaced as well.
  smelt::write_file(run.path() / "step-00000002" / "state.json", "{}");
  sample(2, 30).save(run);
  CHECK(sample(2, 30).equals(*smelt::open_newest_checkpoint(run.path()).newest));
}

TEST_CASE("every state an interrupted save can leave behind is usable", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1, 10).save(run);
  const auto home = run.path() / "step-00000001";
  const auto aside = run.path() / ".replaced-step-00000001";

  // Set aside, the successor not yet in place: the old one counts, with keep_last = 1 it is the only one there is.
  fs::rename(home, aside);
  fs::create_directory(run.path() / ".tmp-save-00000001");
  smelt::write_file(run.path() / ".tmp-save-00000001" / "model.safetensors", "half");
  {
    const auto found = smelt::open_newest_checkpoint(run.path());
    REQUIRE(found.newest.has_value());
    CHECK(sample(1, 10).equals(*found.newest));
  }
  // The next save gives it its name back and removes what is half done.
  sample(2, 10).save(run, 5);
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001", "step-00000002"});

  // The successor in place, the old one not yet removed.
  fs::copy(home, aside);
  sample(1, 20).save(run, 5);
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001", "step-00000002"});
  CHECK(sample(1, 20).equals(smelt::open_checkpoint({1, home})));

  // Removal half done, and a half-written file of a dead process.
  fs::create_directory(run.path() / ".tmp-removed-step-00000000");
  smelt::write_file(run.path() / ".tmp-0-0", "half");
  CHECK(steps_in(run.path()) == steps{2, 1});
  sample(3, 10).save(run, 5);
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001", "step-00000002", "step-00000003"});
}

TEST_CASE("broken checkpoints neither count nor push out good ones", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  for (const std::int64_t step : {1, 2, 3}) sample(step).save(run, 3);
  for (const char* name : {"step-00000002", "step-00000003"})
    fs::resize_file(run.path() / name / "model.safetensors", 9);
  const auto found = smelt::open_newest_checkpoint(run.path());
  REQUIRE(found.newest.has_value());
  CHECK(found.newest->step == 1);
  REQUIRE(found.skipped.size() == 2);
  CHECK(found.skipped[0].place.step == 3);
  CHECK_THAT(found.skipped[0].reason, ContainsSubstring("step-00000003") &&
                                          ContainsSubstring("model.safetensors is truncated: have 9 bytes, need"));
  sample(4).save(run, 2);
  CHECK(smelt::open_checkpoint({1, run.path() / "step-00000001"}).step == 1);
  sample(5).save(run, 2);
  CHECK(steps_in(run.path()) == steps{5, 4});
}

TEST_CASE("a run that went back keeps its new checkpoints and leaves later ones", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  for (const std::int64_t step : {10, 20, 30}) sample(step).save(run, 3);
  sample(15).save(run, 1);
  CHECK(steps_in(run.path()) == steps{30, 20, 15});
}

TEST_CASE("a cut at any place in any file is noticed", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1, 10'000).save(run);
  sample(2, 10'000).save(run);
  const auto newest = run.path() / "step-00000002";
  for (const auto& name : names_in(newest)) {
    const auto whole = smelt::read_file(newest / name);
    std::vector<std::size_t> sizes;
    for (std::size_t size = 0; size < whole.size(); size += 4096) sizes.push_back(size);
    sizes.push_back(whole.size() - 1);
    for (const auto size : sizes) {
      fs::resize_file(newest / name, size);
      const auto found = smelt::open_newest_checkpoint(run.path());
      INFO(name << " cut to " << size);
      REQUIRE(found.newest.has_value());
      CHECK(found.newest->step == 1);
      REQUIRE(found.skipped.size() == 1);
      CHECK(found.skipped[0].place.step == 2);
      CHECK_THAT(found.skipped[0].reason, ContainsSubstring(name));
      smelt::write_file(newest / name, whole);
    }
    fs::remove(newest / name);
    CHECK_THAT(smelt::open_newest_checkpoint(run.path()).skipped.at(0).reason,
               ContainsSubstring(name) && ContainsSubstring("No such file"));
    smelt::write_file(newest / name, whole + "x");
    CHECK_THAT(smelt::open_newest_checkpoint(run.path()).skipped.at(0).reason, ContainsSubstring(name));
    smelt::write_file(newest / name, whole);
  }
  CHECK(smelt::open_newest_checkpoint(run.path()).newest->step == 2);
}

TEST_CASE("a flipped bit anywhere is noticed", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1, 300).save(run);
  sample(2, 300).save(run);
  const auto newest = run.path() / "step-00000002";
  std::mt19937 random(7);
  for (const auto& name : names_in(newest)) {
    const auto whole = smelt::read_file(newest / name);
    // Every byte of the small state.json, a sample of the others.
    const bool all = name == "state.json";
    const std::size_t tries = all ? whole.size() : 200;
    for (std::size_t i = 0; i < tries; ++i) {
      const auto at = all ? i : random() % whole.size();
      overwrite(newest / name, at, static_cast<char>(whole[at] ^ (1 << (random() % 8))));
      const auto found = smelt::open_newest_checkpoint(run.path());
      INFO(name << " damaged at " << at);
      REQUIRE(found.newest.has_value());
      CHECK(found.newest->step == 1);
      REQUIRE(found.skipped.size() == 1);
      CHECK_THAT(found.skipped[0].reason, ContainsSubstring(name));
      overwrite(newest / name, at, whole[at]);
    }
  }
  CHECK(smelt::open_newest_checkpoint(run.path()).newest->step == 2);
}

TEST_CASE("a checkpoint moved to another step's name is not believed", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1).save(run);
  fs::rename(run.path() / "step-00000001", run.path() / "step-00000005");
  const auto found = smelt::open_newest_checkpoint(run.path());
  CHECK_FALSE(found.newest.has_value());
  CHECK_THAT(found.skipped.at(0).reason, ContainsSubstring("state.json is of step 1, its folder of step 5"));
}

TEST_CASE("a checkpoint of a newer version is an error and not passed over", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1).save(run);
  sample(2).save(run);
  const auto file = run.path() / "step-00000002" / "state.json";
  // One sealed as today, one that seals itself in a way not known yet.
  const std::string sealed = smelt::detail::sealed(json{{"version", 7}, {"step", 2}});
  for (const auto& text : {sealed, std::string("{\"seal\": \"?\", \"version\": 7}")}) {
    smelt::write_file(file, text);
    try {
      static_cast<void>(smelt::open_newest_checkpoint(run.path()));
      FAIL("accepted");
    } catch (const smelt::error& e) {
      CHECK(e.code() == smelt::errc::unsupported);
      CHECK_THAT(e.what(),
                 ContainsSubstring("version 7") && ContainsSubstring("up to 1") && ContainsSubstring("step-00000002"));
    }
  }
}

TEST_CASE("version 1 as it was first written is still read", "[train][checkpoint]") {
  using namespace std::string_literals;
  const temporary_folder folder;
  const auto dir = folder.path() / "step-00000003";
  fs::create_directory(dir);
  // Two values 1 and -2 called w; an optimiser that keeps nothing.
  smelt::write_file(dir / "model.safetensors",
                    "\x58\0\0\0\0\0\0\0"s +
                        R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )" +
                        "\0\0\x80\x3F\0\0\0\xC0"s);
  smelt::write_file(dir / "optimizer.safetensors", "\x20\0\0\0\0\0\0\0"s + R"({"__metadata__":{"format":"pt"}})");
  smelt::write_file(dir / "state.json", R"({
  "checksum": "bd00416381666522",
  "files": {
    "model.safetensors": {
      "bytes": 104,
      "checksum": "24f17f38b49c9bca"
    },
    "optimizer.safetensors": {
      "bytes": 40,
      "checksum": "8ac8e2197d725fce"
    }
  },
  "state": {
    "cursor": 21,
    "spec": {
      "width": 64
    }
  },
  "step": 3,
  "version": 1
}
)");
  const auto found = smelt::open_newest_checkpoint(folder.path());
  INFO((found.skipped.empty() ? std::string() : found.skipped[0].reason));
  REQUIRE(found.newest.has_value());
  CHECK(found.newest->state == json{{"cursor", 21}, {"spec", {{"width", 64}}}});
  const auto values = found.newest->weights.floats_in_place(found.newest->weights.at("w"));
  REQUIRE(values.has_value());
  CHECK((*values)[0] == 1.0F);
  CHECK((*values)[1] == -2.0F);
}

TEST_CASE("a second process cannot use the same folder", "[train][checkpoint]") {
  const temporary_folder folder;
  const auto dir = folder.path() / "run";
  {
    const smelt::run_folder run(dir);
    CHECK_THROWS_WITH(smelt::run_folder(dir), ContainsSubstring("in use by process " + std::to_string(::getpid())) &&
                                                  ContainsSubstring(dir.string()));
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int status = 1;
      try {
        const smelt::run_folder again(dir);
      } catch (const smelt::error&) {
        status = 0;
      }
      ::_exit(status);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  const smelt::run_folder later(dir);
  CHECK(later.path() == dir);
  smelt::write_file(folder.path() / "file", "");
  CHECK_THROWS_WITH(smelt::run_folder(folder.path() / "file"), ContainsSubstring("cannot create folder"));
}

TEST_CASE("state that JSON cannot hold is refused by its place", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt::run_folder run(folder.path());
  sample(1).save(run);
  const json bad{{"options", {{"lr", {1.0, std::numeric_limits<double>::quiet_NaN()}}}}};
  CHECK_THROWS_WITH(smelt::save_checkpoint(run, 2, {}, {}, bad), ContainsSubstring("/options/lr/1"));
  CHECK_THROWS_WITH(smelt::save_checkpoint(run, 2, {}, {}, json("bad \xFF")),
                    ContainsSubstring("cannot save checkpoint"));
  const std::vector<float> values(4);
  const std::vector<st::tensor> wrong{{"w", {5}, values}};
  CHECK_THROWS_WITH(smelt::save_checkpoint(run, 2, wrong, {}, json()), ContainsSubstring("[5] was given 4 values"));
  CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001"});
}

TEST_CASE("a full disk costs no checkpoint", "[train][checkpoint]") {
  const temporary_folder folder;
  const smelt_test::small_disk disk(folder.path(), 256 * 1024);
  if (!disk.mounted()) {
    WARN("no right to mount a small file system: the full disk was not tried");
    return;
  }
  const smelt::run_folder run(folder.path());
  sample(1, 5'000).save(run);
  sample(2, 5'000).save(run);
  // Each time another file is the one that does not fit.
  for (const std::size_t n : {5'000, 11'000, 12'000, 40'000}) {
    for (const std::int64_t step : {2, 3}) {
      try {
        sample(step, n + 6'000).save(run);
        FAIL("the disk was not full");
      } catch (const smelt::error& e) {
        CHECK(e.code() == smelt::errc::io);
        CHECK_THAT(e.what(), ContainsSubstring("No space left on device") && ContainsSubstring("safetensors"));
      }
      CHECK(names_in(run.path()) == std::vector<std::string>{".lock", "step-00000001", "step-00000002"});
    }
  }
  CHECK(sample(2, 5'000).equals(*smelt::open_newest_checkpoint(run.path()).newest));
}

namespace {

struct kill_result {
  int kills_inside = 0;    // kills that left something half done behind
  std::int64_t saves = 0;  // saves that were acknowledged
};

/// Saves in a child process until it is killed, again and again, and checks after each kill that nothing acknowledged
/// is lost.
kill_result kill_while_saving(int kills, std::uint32_t seed) {
  const temporary_folder folder;
  std::mt19937 random(seed);
  kill_result result;
  std::int64_t acknowledged = 0;
  std::chrono::microseconds one_save{};
  {
    const smelt::run_folder run(folder.path());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) sample(0).save(run, 1);
    one_save = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start) / 3;
  }
  for (int kill = 0; kill < kills; ++kill) {
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        const smelt::run_folder run(folder.path());
        std::int64_t step = acknowledged;
        // The last acknowledged step again first: a replacement is interrupted as often as a new name.
        for (;; ++step) {
          if (::write(pipe_ends[1], &acknowledged, sizeof acknowledged) != sizeof acknowledged) ::_exit(3);
          sample(step).save(run, 1 + step % 2);
          acknowledged = step;
        }
      } catch (...) {
        ::_exit(2);
      }
    }
    ::close(pipe_ends[1]);
    // The first word says that the child is about to save.
    std::int64_t word = 0;
    REQUIRE(::read(pipe_ends[0], &word, sizeof word) == sizeof word);
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<std::int64_t>(random() % 1'000'000U) * 3 * one_save.count() / 1'000'000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(pipe_ends[0], &word, sizeof word) == sizeof word) {
      acknowledged = word;
      ++result.saves;
    }
    ::close(pipe_ends[0]);
    for (const auto& name : names_in(folder.path())) {
      if (name.starts_with(".tmp") || name.starts_with(".replaced")) {
        ++result.kills_inside;
        break;
      }
    }

    const auto found = smelt::open_newest_checkpoint(folder.path());
    INFO("kill " << kill << ", acknowledged " << acknowledged);
    REQUIRE(found.newest.has_value());
    CHECK(found.skipped.empty());
    CHECK(found.newest->step >= acknowledged);
    CHECK(found.newest->step <= acknowledged + 1);
    CHECK(sample(found.newest->step).equals(*found.newest));
    // Older ones are either whole or gone, never half removed.
    for (const auto& place : smelt::find_checkpoints(folder.path())) CHECK_NOTHROW(smelt::open_checkpoint(place));
  }
  // What the kills left behind is gone after one more save.
  const smelt::run_folder run(folder.path());
  sample(acknowledged + 2).save(run, 1);
  CHECK(names_in(run.path()).size() == 2);
  return result;
}

}  // namespace

TEST_CASE("a kill during a save loses nothing saved before", "[train][checkpoint]") {
  const auto result = kill_while_saving(20, 1);
  CHECK(result.kills_inside > 2);
}

TEST_CASE("hundreds of kills during saves lose nothing saved before", "[train][checkpoint][full]") {
  const auto result = kill_while_saving(400, 2);
  CHECK(result.kills_inside > 40);
  CHECK(result.saves > 40);
}
