// Do bytes become tokens and come back, whatever the text?
#include <smelt/io/tokens.hpp>

#include "catch.hpp"

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using namespace std::string_literals;

TEST_CASE("all 256 byte values become their own unsigned token and come back", "[tokens]") {
  std::string bytes;
  for (int value = 0; value < 256; ++value) bytes.push_back(static_cast<char>(value));
  const std::vector<std::int32_t> tokens = smelt::byte_tokens(bytes);
  REQUIRE(tokens.size() == 256);
  for (std::int32_t value = 0; value < 256; ++value) CHECK(tokens[static_cast<std::size_t>(value)] == value);
  CHECK(smelt::token_bytes(tokens) == bytes);
}

TEST_CASE("byte tokens accept what is not UTF-8 text", "[tokens]") {
  for (const std::string& text : {""s, "\xFF\xFE"s, "\x80"s, "h\0i\0"s, "\xEF\xBB\xBFmark"s, "\0"s,
                                  "l'\xC3\xA9t\xC3\xA9 \xE9t\xE9"s, "a\r\nb\r\n"s}) {
    const auto tokens = smelt::byte_tokens(text);
    CHECK(tokens.size() == text.size());
    CHECK(smelt::token_bytes(tokens) == text);
  }
}

TEST_CASE("the first invalid byte of UTF-8 is found", "[tokens]") {
  const auto valid = [](const std::string& text) { return !smelt::first_invalid_utf8(text).has_value(); };
  CHECK(valid(""));
  CHECK(valid("plain\0\r\n"s));
  CHECK(
      valid("\xEF\xBB\xBF\xC3\xA9t\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xED\x9F\xBF \xEE\x80\x80 \xF4\x8F\xBF\xBF"));

  struct example {
    std::string text;
    std::int64_t offset;
  };
  for (const example& e : {
           example{"\xFF\xFE", 0},
           example{"ab\x80", 2},
           example{"\xC3\xA9\xC3", 2},        // cut short
           example{"x\xC0\xAF", 1},           // overlong
           example{"x\xE0\x80\xAF", 1},       // overlong
           example{"x\xF0\x80\x80\xAF", 1},   // overlong
           example{"xy\xED\xA0\x80", 2},      // surrogate
           example{"xy\xF4\x90\x80\x80", 2},  // above U+10FFFF
           example{"\xE2\x82\x28", 0},        // third byte is not a continuation
           example{"caf\xE9 au lait", 3},     // Latin-1
           example{"\xF0\x9F\x98\x80\xF0\x9F", 4},
       }) {
    CAPTURE(e.offset);
    REQUIRE(smelt::first_invalid_utf8(e.text).has_value());
    CHECK(*smelt::first_invalid_utf8(e.text) == e.offset);
  }
}

TEST_CASE("readable text marks bytes that are not text and keeps the rest", "[tokens]") {
  CHECK(smelt::readable_text("l'\xC3\xA9t\xC3\xA9") == "l'\xC3\xA9t\xC3\xA9");
  CHECK(smelt::readable_text("\xFF\xFE") == "<0xFF><0xFE>");
  CHECK(smelt::readable_text("a\x80z") == "a<0x80>z");
  CHECK(smelt::readable_text("cut \xE2\x82") == "cut <0xE2><0x82>");

  // Every pair of bytes shows as well-formed text.
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string pair{static_cast<char>(a), static_cast<char>(b)};
      const bool well_formed = !smelt::first_invalid_utf8(smelt::readable_text(pair)).has_value();
      if (!well_formed) FAIL("bytes " << a << ' ' << b << " show as invalid text");
    }
  }

  // A character that the end of a document cuts is marked on both sides of it.
  const std::vector<std::int32_t> tokens{'h', 'i', 0xC3, 256, 0xA9, '!'};
  CHECK(smelt::readable_text(tokens) == "hi<0xC3><end of document><0xA9>!");
  CHECK(smelt::readable_text(std::vector<std::int32_t>{}).empty());
  CHECK_THROWS_AS(smelt::readable_text(std::vector<std::int32_t>{257}), smelt::error);
  CHECK_THROWS_AS(smelt::token_bytes(std::vector<std::int32_t>{256}), smelt::error);
}

TEST_CASE("tokens outside the vocabulary are named with their position", "[tokens]") {
  const auto check = [](const std::vector<std::int64_t>& ids, std::int64_t vocab) {
    smelt::check_tokens(std::span<const std::int64_t>(ids), vocab);
  };
  CHECK_NOTHROW(check({0, 256}, 257));
  CHECK_THROWS_WITH(check({5, -1}, 257), "token id -1 at position 1 is outside the vocabulary; need 0 <= id < 257");
  CHECK_THROWS_WITH(check({257}, 257), ContainsSubstring("257 at position 0") && ContainsSubstring("id < 257"));
  CHECK_THROWS_WITH(check({0, 0, std::int64_t{1} << 31}, 257), ContainsSubstring("2147483648 at position 2"));
  CHECK_THROWS_WITH(check({}, 257), ContainsSubstring("have 0, need at least 1"));
  try {
    check({-1}, 257);
    FAIL("a negative id was accepted");
  } catch (const smelt::error& e) {
    CHECK(e.code() == smelt::errc::invalid_argument);
  }

  // An unsigned id as large as a wrapped -1 is too large, not negative.
  const std::vector<std::uint32_t> wrapped{(std::numeric_limits<std::uint32_t>::max)()};
  CHECK_THROWS_WITH(smelt::check_tokens(std::span<const std::uint32_t>(wrapped), 50304),
                    ContainsSubstring("4294967295 at position 0"));
}
