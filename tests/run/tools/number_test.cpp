#include "../../../tools/smelt/number.hpp"

#include "catch.hpp"

using namespace smelt::tool;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("counts are read exactly, with suffixes and exponents", "[tools][number]") {
  CHECK(read_count("0") == 0);
  CHECK(read_count("2M") == 2'000'000);
  CHECK(read_count("500k") == 500'000);
  CHECK(read_count("500K") == 500'000);
  CHECK(read_count("1.5M") == 1'500'000);
  CHECK(read_count("1e6") == 1'000'000);
  CHECK(read_count("3.2e9") == 3'200'000'000);
  CHECK(read_count("2B") == 2'000'000'000);
  CHECK(read_count("2G") == 2'000'000'000);
  CHECK(read_count("1T") == 1'000'000'000'000);
  CHECK(read_count("500_000") == 500'000);
  CHECK(read_count("1.000") == 1);
  CHECK(read_count("9223372036854775807") == 9'223'372'036'854'775'807);
  CHECK(read_count("9.223372036854775807e18") == 9'223'372'036'854'775'807);
}

TEST_CASE("what is no whole number of 64 bits is not read", "[tools][number]") {
  for (const char* text : {"",
                           "-1",
                           "+1",
                           "1.5",
                           "1.5e0",
                           "k",
                           ".",
                           "2m",
                           "2MM",
                           "1e",
                           "1e6k",
                           "0x10",
                           "2 M",
                           " 2",
                           "nan",
                           "inf",
                           "9223372036854775808",
                           "1e19",
                           "10000000000T",
                           "1e999",
                           "_1",
                           "1..5"})
    CHECK_FALSE(read_count(text).has_value());
  CHECK_THROWS_WITH(
      parse_count("many", "--tokens", 1),
      ContainsSubstring("--tokens must be a whole number of at least 1") && ContainsSubstring("\"many\""));
  CHECK_THROWS_AS(parse_count("0", "--tokens", 1), smelt::error);
  CHECK(parse_count("1", "--tokens", 1) == 1);
  CHECK(parse_count("64", "--kv-bytes", 1, 64) == 64);
  CHECK_THROWS_WITH(parse_count("65", "--kv-bytes", 1, 64),
                    ContainsSubstring("--kv-bytes must be a whole number from 1 to 64; found \"65\""));
}

TEST_CASE("reals are decimal, finite and nothing else", "[tools][number]") {
  CHECK(parse_real("0.003", "--x") == 0.003);
  CHECK(parse_real("1e-3", "--x") == 0.001);
  CHECK(parse_real("-2.5", "--x") == -2.5);
  CHECK(parse_real("0", "--x") == 0);
  for (const char* text : {"", " ", " 1", "1 ", "nan", "inf", "-inf", "1e400", "-1e400", "1e-400", "0x1p3", "1k", "1,5",
                           "1.5.0", "+1", "e5"})
    CHECK_THROWS_WITH(parse_real(text, "--clip"), ContainsSubstring("--clip must be a number") &&
                                                      ContainsSubstring("found \"" + std::string(text) + "\""));
}

TEST_CASE("numbers are written for people", "[tools][number]") {
  CHECK(grouped(std::int64_t{0}) == "0");
  CHECK(grouped(std::int64_t{999}) == "999");
  CHECK(grouped(std::int64_t{1'000}) == "1,000");
  CHECK(grouped(std::int64_t{-1'234'567}) == "-1,234,567");
  CHECK(grouped(std::int64_t{-123}) == "-123");
  CHECK(grouped(fixed(1234567.891, 2)) == "1,234,567.89");
  CHECK(compact(0) == "0");
  CHECK(compact(50) == "50");
  CHECK(compact(999.9) == "1k");
  CHECK(compact(1'234'567) == "1.23M");
  CHECK(compact(12'345'678) == "12.3M");
  CHECK(compact(2e15) == "2P");
  CHECK(compact(9.632e-10) == "9.63e-10");
  CHECK(compact(-0.0012) == "-0.0012");
  CHECK(compact(0.01) == "0.01");
  CHECK(compact(2e26) == "200Y");
  CHECK(compact(2e300) == "2e+300");
  CHECK(compact(-1'500) == "-1.5k");
  CHECK(compact(std::nan("")) == "n/a");
  CHECK(fixed(1.0 / 0.0, 2) == "n/a");
  CHECK(duration(42.4) == "42 s");
  CHECK(duration(185) == "3 min 05 s");
  CHECK(duration(7'830) == "2 h 10 min");
  CHECK(duration(-1) == "n/a");
  CHECK(binary_bytes(92'274'688) == "88.0 MiB");
  CHECK(binary_bytes(512) == "512 B");
  CHECK(binary_bytes(0) == "0 B");
  CHECK(binary_bytes(1'024) == "1.0 KiB");
  CHECK(binary_bytes(std::pow(2.0, 63)) == "8192.0 PiB");
}
