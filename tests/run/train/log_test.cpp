// Does a log hold whole lines, each step once, whatever interrupts it?
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <smelt/io/atomic_file.hpp>
#include <smelt/train/log.hpp>
#include <string>

#include "catch.hpp"
#include "support/temporary_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::temporary_folder;

namespace {

std::vector<std::int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  for (const auto& line : smelt::read_log(path)) steps.push_back(line["step"].get<std::int64_t>());
  return steps;
}

}  // namespace

TEST_CASE("each line of a log is one JSON object, kept in order", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  {
    smelt::run_log log(path, 0);
    log.append({{"step", 1}, {"loss", 5.5}});
    CHECK(smelt::read_file(path) == "{\"loss\":5.5,\"step\":1}\n");
    log.append({{"step", 2}, {"note", "two\nlines \xFF"}});
  }
  const auto lines = smelt::read_log(path);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["loss"] == 5.5);
  CHECK(lines[1]["note"].get<std::string>().starts_with("two\nlines "));
}

TEST_CASE("numbers JSON cannot spell become null and are listed", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  smelt::run_log log(path, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  log.append({{"step", 1}, {"loss", nan}, {"balance", {0.5, -inf}}, {"lr", 1e-3}});
  log.append({{"step", 2}, {"loss", static_cast<double>(std::numeric_limits<float>::max())}});
  const auto lines = smelt::read_log(path);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["loss"].is_null());
  CHECK(lines[0]["balance"][0] == 0.5);
  CHECK(lines[0]["balance"][1].is_null());
  CHECK(lines[0]["not_finite"] == json{"/balance/1", "/loss"});
  CHECK_FALSE(lines[1].contains("not_finite"));
  CHECK(lines[1]["loss"].get<float>() == std::numeric_limits<float>::max());
}

TEST_CASE("a resumed run continues after the step it resumes from", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  {
    smelt::run_log log(path, 0);
    for (int step = 1; step <= 5; ++step) log.append({{"step", step}});
  }
  {
    smelt::run_log log(path, 3);
    CHECK(steps_of(path) == std::vector<std::int64_t>{1, 2, 3});
    log.append({{"step", 4}});
  }
  CHECK(steps_of(path) == std::vector<std::int64_t>{1, 2, 3, 4});
  {
    const smelt::run_log log(path, 100);
  }
  CHECK(steps_of(path) == std::vector<std::int64_t>{1, 2, 3, 4});
  {
    const smelt::run_log log(path, 0);
  }
  CHECK(smelt::read_file(path).empty());
}

TEST_CASE("a torn last line is dropped wherever it was cut", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  const std::string whole = "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n";
  const auto first = whole.find('\n') + 1;
  for (std::size_t size = first; size < whole.size(); ++size) {
    smelt::write_file(path, whole.substr(0, size));
    CHECK(smelt::read_log(path).size() == 1);
    smelt::run_log log(path, 9);
    CHECK(smelt::read_file(path) == whole.substr(0, first));
    log.append({{"step", 2}});
    CHECK(steps_of(path) == std::vector<std::int64_t>{1, 2});
  }
  // What a power cut can leave: the length grown, the bytes never written.
  smelt::write_file(path, whole + std::string(20, '\0'));
  {
    const smelt::run_log log(path, 9);
  }
  CHECK(smelt::read_file(path) == whole);
}

TEST_CASE("a log that is not one is refused untouched", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  for (const std::string bad : {"{\"step\":1}\nhello\n", "{\"step\":1}\n{\"loss\":1}\n", "{\"step\":1}\n[2]\n",
                                "{\"step\":1}\n\n", "{\"step\":1}\n{\"step\":1.5}\n"}) {
    smelt::write_file(path, bad);
    CHECK_THROWS_WITH(smelt::run_log(path, 0), ContainsSubstring("log.jsonl: line 2"));
    CHECK_THROWS_WITH(smelt::read_log(path), ContainsSubstring("line 2"));
    CHECK(smelt::read_file(path) == bad);
  }
  CHECK_THROWS_WITH(smelt::read_log(folder.path() / "absent"), ContainsSubstring("absent"));
}

TEST_CASE("a line without a step is refused", "[train][log]") {
  const temporary_folder folder;
  smelt::run_log log(folder.path() / "log.jsonl", 0);
  CHECK_THROWS_AS(log.append({{"loss", 1.0}}), smelt::error);
  CHECK_THROWS_AS(log.append(json::array({1, 2})), smelt::error);
  CHECK_THROWS_AS(log.append({{"step", "one"}}), smelt::error);
  CHECK(smelt::read_log(folder.path() / "log.jsonl").empty());
}

TEST_CASE("a line that does not fit is taken back whole", "[train][log]") {
  const temporary_folder folder;
  const auto path = folder.path() / "log.jsonl";
  smelt::run_log log(path, 0);
  log.append({{"step", 1}});
  const auto before = smelt::read_file(path);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit lower{before.size() + 5, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &lower) == 0);
  std::string message;
  try {
    log.append({{"step", 2}, {"loss", 1.0}});
  } catch (const smelt::error& e) {
    message = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(message, ContainsSubstring("File too large") && ContainsSubstring("log.jsonl"));
  CHECK(smelt::read_file(path) == before);
  log.append({{"step", 2}});
  CHECK(steps_of(path) == std::vector<std::int64_t>{1, 2});
}
