#include <nlohmann/json.hpp>
#include <smelt/kernels/cpu/instruction_set.hpp>
#include <string>
#include <vector>

#include "../../../tools/smelt/bandwidth.hpp"
#include "catch.hpp"
#include "support/run_tool.hpp"

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using smelt_test::outcome;
using smelt_test::run_tool;

TEST_CASE("info names the sets of the machine and the one that is chosen", "[tools][info]") {
  const outcome o = run_tool({"info", "--json"});
  INFO(o.err);
  REQUIRE(o.exit == 0);
  const json j = json::parse(o.out);
  std::string widest;
  REQUIRE(j["instruction_sets"].size() == smelt::all_instruction_sets.size());
  double peak = 0;
  for (std::size_t i = 0; i < smelt::all_instruction_sets.size(); ++i) {
    const smelt::instruction_set set = smelt::all_instruction_sets[i];
    const json& found = j["instruction_sets"][i];
    CHECK(found["name"] == smelt::name_of(set));
    CHECK(found["machine"] == smelt::machine_has(set));
    const bool usable = found["build"] == true && found["machine"] == true;
    CHECK(found["fp32_peak_flop_per_second"].is_number() == usable);
    if (!usable) continue;
    widest = found["name"];
    peak = found["fp32_peak_flop_per_second"];
    CHECK(peak > 1e8);
  }
  CHECK(j["instruction_set"] == widest);
  CHECK(j["bf16"] == (widest == "avx512_bf16"));
  CHECK(j["cores"] >= 1);
  CHECK(j["caches_assumed"]["first_level_bytes"] > 0);
  REQUIRE(j["read_bytes_per_second"].size() >= 2);
  CHECK(j["read_bytes_per_second"].front()["from"] == "L2");
  CHECK(j["read_bytes_per_second"].back()["from"] == "memory");
  for (const json& level : j["read_bytes_per_second"]) {
    CHECK(level["one_core"] > 1e7);
    CHECK(level["together"] > 1e7);
  }
  CHECK(j["flags"] != "unknown");
  CHECK_FALSE(j["version"].get<std::string>().empty());

  const outcome text = run_tool({"info"});
  CHECK(text.exit == 0);
  CHECK_THAT(text.out, ContainsSubstring(widest) && ContainsSubstring("huge pages") && ContainsSubstring("GB/s"));
}

TEST_CASE("threads that measure memory read all of it between them", "[tools][info]") {
  const smelt::tool::read_buffer buffer(std::size_t{3} << 20);
  const std::size_t words = buffer.words();
  REQUIRE(words >= (std::size_t{3} << 20) / 8);
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < words; ++i) expected += i;
  for (const std::size_t parts : {1, 2, 3}) {
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t first = words * i / parts, last = words * (i + 1) / parts;
      found += smelt::tool::sum_of(buffer.data(), first, last);
      for (std::size_t w = first + (last - first) / 32 * 32; w < last; ++w) found += w;  // less than a block is left
    }
    CHECK(found == expected);
  }
  for (const int threads : {1, 2, 3}) CHECK(smelt::tool::read_bandwidth(buffer, 1 << 20, threads, 2) > 0);
}
