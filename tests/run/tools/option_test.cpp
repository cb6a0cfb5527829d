#include "../../../tools/smelt/loop_option.hpp"
#include "../../../tools/smelt/tolerance_option.hpp"
#include "catch.hpp"

using namespace smelt;
using namespace smelt::tool;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("percentages are read exactly", "[tools][option]") {
  CHECK(read_percent("4%") == percent{40'000});
  CHECK(read_percent("0.25%") == percent{2'500});
  CHECK(read_percent("0.0001%") == percent{1});
  CHECK(read_percent("0%") == percent{0});
  CHECK(read_percent("100%") == percent{1'000'000});
  for (const char* text : {"", "%", "4", "0.04", "-1%", "0.00001%", "1e2%", "4%%", "4k%", "1000001%", " 4%"})
    CHECK_FALSE(read_percent(text).has_value());
  CHECK(shown(percent{40'000}) == "4%");
  CHECK(shown(percent{2'500}) == "0.25%");
  CHECK(shown(percent{1}) == "0.0001%");
  CHECK(shown(percent{1'000'000}) == "100%");
}

TEST_CASE("tolerances keep their default where they are not named", "[tools][option]") {
  CHECK(parse_tolerance("") == within{});
  CHECK(parse_tolerance("flops=1%,params=0.5%,kv=2%") ==
        within{.flops = {10'000}, .params = {5'000}, .kv_cache = {20'000}});
  CHECK(parse_tolerance("kv_cache=3%") == within{.kv_cache = {30'000}});
  CHECK_THROWS_WITH(parse_tolerance("flop=1%"), ContainsSubstring("\"flop\", did you mean \"flops\"?"));
  CHECK_THROWS_WITH(parse_tolerance("flops=1"), ContainsSubstring("such as flops=4%; found \"flops=1\""));
  CHECK_THROWS_WITH(parse_tolerance("flops"), ContainsSubstring("found \"flops\""));
  CHECK_THROWS_WITH(parse_tolerance("kv=1000001%"), ContainsSubstring("up to 1000000%"));
  CHECK_THROWS_WITH(parse_tolerance("4%"), ContainsSubstring("such as flops=4%,params=4%,kv=4%; found \"4%\""));
  for (const char* twice : {"flops=4%,flops=5%", "flops=4%,flops=4%", "kv=1%,params=1%,kv_cache=1%"})
    CHECK_THROWS_WITH(parse_tolerance(twice), ContainsSubstring("every budget once"));
  CHECK_THROWS_WITH(parse_tolerance("flops=1%,,kv=1%"), ContainsSubstring("found \"\""));
}

TEST_CASE("loops are a span and a number of visits", "[tools][option]") {
  CHECK(parse_loop("middle:2") == middle_twice);
  CHECK(parse_loop("middle+6:3") == loop_spec{.first = loop_spec::middle, .count = 6, .visits = visits(3)});
  CHECK(parse_loop("3+6:2") == loop_spec{.first = 3, .count = 6, .visits = visits(2)});
  CHECK_THROWS_WITH(parse_loop("middle"), ContainsSubstring("no colon"));
  CHECK_THROWS_WITH(parse_loop("middle:0"), ContainsSubstring("visits must be from 1 to 8"));
  CHECK_THROWS_WITH(parse_loop("middle:9"), ContainsSubstring("visits must be from 1 to 8"));
  CHECK_THROWS_WITH(parse_loop("4:2"), ContainsSubstring("no number of layers"));
  CHECK_THROWS_WITH(parse_loop("-1+2:2"), ContainsSubstring("first layer must be from 0 to 255"));
  CHECK_THROWS_WITH(parse_loop("center+2:2"), ContainsSubstring("first layer"));
  CHECK_THROWS_WITH(parse_loop("1+:2"), ContainsSubstring("number of layers must be from 1 to 256"));
}
