// Is the bigram entropy what a pencil gives?
#include <smelt/train/bigram.hpp>

#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <smelt/core/random.hpp>

using Catch::Matchers::ContainsSubstring;

namespace {

double entropy(const std::string& text) {
  return smelt::bigram_entropy(smelt::byte_tokens(text), 257);
}

}  // namespace

TEST_CASE("bigram entropy of small texts is what a pencil gives", "[bigram]") {
  CHECK(entropy("aaaaaa") == 0.0);
  CHECK(entropy("abababab") == 0.0);
  // a is followed by a, b, a, b: ln 2 for four of the six steps; b by a, always.
  CHECK(entropy("aabaaba") == Approx(4.0 / 6.0 * std::log(2.0)));
  // From a: b once, c once, d once; every other step is certain.
  CHECK(entropy("abacada") == Approx(3.0 / 6.0 * std::log(3.0)));
}

TEST_CASE("bigram entropy of independent bits approaches ln 2", "[bigram]") {
  const smelt::random_stream stream(1, 2);
  std::vector<std::int32_t> bits;
  for (std::uint64_t i = 0; i < 100'000; ++i) bits.push_back(static_cast<std::int32_t>(stream.below(2, i)));
  CHECK(smelt::bigram_entropy(bits, 2) == Approx(std::log(2.0)).epsilon(1e-3));
}

TEST_CASE("bigram entropy refuses what it cannot measure", "[bigram]") {
  CHECK_THROWS_WITH(entropy(""), ContainsSubstring("need at least 1"));
  CHECK_THROWS_WITH(entropy("a"), ContainsSubstring("at least 2 tokens, have 1"));
  CHECK_THROWS_WITH(smelt::bigram_entropy(std::vector<std::int32_t>{1, 300}, 257),
                    ContainsSubstring("300 at position 1"));
  CHECK_THROWS_WITH(smelt::bigram_entropy(std::vector<std::int32_t>{1, 2}, 50304), ContainsSubstring("found 50304"));
}
