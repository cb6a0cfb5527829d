// Are random numbers random, and the same everywhere?
#include <smelt/core/random.hpp>
#include <smelt/io/checksum.hpp>

#include "catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

using smelt::random_stream;

TEST_CASE("Philox4x32-10 gives the published known answers", "[random]") {
  using words = std::array<std::uint32_t, 4>;
  CHECK(smelt::philox4x32({0, 0, 0, 0}, {0, 0}) == words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(smelt::philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}) ==
        words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(smelt::philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("random numbers are known to the compiler", "[random]") {
  constexpr random_stream stream(0x299f31d0a4093822u, 0x0370734413198a2eu);
  static_assert(stream.bits(0x85a308d3243f6a88u) == 0x94fdccebd16cfe09u);
  static_assert(stream.below(10, 7) < 10);
  static_assert(smelt::permuted(2, 5, stream) < 5);
  CHECK(stream.bits(1) == random_stream(stream).bits(1));
}

TEST_CASE("seed, stream and position all matter, in all their 64 bits", "[random]") {
  std::vector<std::uint64_t> seen;
  for (int shift = 0; shift < 64; ++shift) {
    const std::uint64_t bit = std::uint64_t{1} << shift;
    seen.push_back(random_stream(bit, 0).bits(0));
    seen.push_back(random_stream(0, bit).bits(0));
    seen.push_back(random_stream(0, 0).bits(bit));
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("uniform numbers stay in [0, 1) and have a uniform's moments", "[random]") {
  const random_stream stream(1, 2);
  constexpr std::uint64_t count = 100'000;
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = stream.uniform(i);
    REQUIRE((u >= 0.0 && u < 1.0));
    sum += u;
    squares += u * u;
    largest = (std::max)(largest, u);
  }
  CHECK(sum / count == Approx(0.5).margin(0.004));  // four standard errors
  CHECK(squares / count == Approx(1.0 / 3.0).margin(0.004));
  CHECK(largest > 0.999);
}

TEST_CASE("the normal quantile agrees with tabulated values", "[random]") {
  struct pair {
    double p;
    double z;
  };
  for (const pair& q :
       {pair{1.1102230246251565e-16, -8.209536151601386}, pair{1e-12, -7.034483825301132},
        pair{1e-05, -4.2648907939228256}, pair{0.02, -2.0537489106318225}, pair{0.0749, -1.4402382675279632},
        pair{0.0751, -1.4388253927525398}, pair{0.3, -0.5244005127080407}, pair{0.9, 1.2815515655446008},
        pair{0.925001, 1.4395385353452304}, pair{0.9999, 3.7190164854557084}}) {
    CAPTURE(q.p);
    CHECK(smelt::detail::normal_quantile(q.p) == Approx(q.z).epsilon(4e-15));
    CHECK(smelt::detail::portable_log(q.p) == Approx(std::log(q.p)).epsilon(1e-15));
  }
  CHECK(smelt::detail::normal_quantile(0.5) == 0.0);
  CHECK(smelt::detail::portable_log(1.0) == 0.0);
}

TEST_CASE("normal numbers have the normal moments and tails", "[random]") {
  const random_stream stream(3, 4);
  constexpr std::uint64_t count = 200'000;
  std::array<double, 5> moments{};
  std::uint64_t beyond_two = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double z = stream.normal(i);
    REQUIRE(std::isfinite(z));
    double power = 1;
    for (double& moment : moments) {
      moment += power / count;
      power *= z;
    }
    beyond_two += std::fabs(z) > 2.0 ? 1 : 0;
  }
  CHECK(moments[1] == Approx(0.0).margin(0.01));
  CHECK(moments[2] == Approx(1.0).margin(0.015));
  CHECK(moments[3] == Approx(0.0).margin(0.04));
  CHECK(moments[4] == Approx(3.0).margin(0.1));
  CHECK(static_cast<double>(beyond_two) / count == Approx(0.0455).margin(0.002));
}

TEST_CASE("every build draws the same normal numbers, to the bit", "[random]") {
  const random_stream stream(1, 2);
  std::vector<double> numbers;
  for (std::uint64_t i = 0; i < 10'000; ++i) numbers.push_back(stream.normal(i));
  CHECK(smelt::checksum64(std::as_bytes(std::span(numbers))) == 0xC889A686DE99FEFCu);
}

TEST_CASE("bounded integers reach every value equally often", "[random]") {
  const random_stream stream(5, 6);
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < 70'000; ++i) ++counts[stream.below(7, i)];
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  CHECK(chi_squared < 22.5);  // 6 degrees of freedom, p = 0.001

  // A remainder would favour the lower third of this range two to one; a plain product, every third value.
  constexpr std::uint64_t bound = std::uint64_t{3} << 62;
  int lower_third = 0;
  int every_third = 0;
  for (std::uint64_t i = 0; i < 30'000; ++i) {
    const std::uint64_t value = stream.below(bound, i);
    REQUIRE(value < bound);
    lower_third += value < bound / 3 ? 1 : 0;
    every_third += value % 3 == 0 ? 1 : 0;
  }
  CHECK(lower_third == Approx(10'000).margin(350));
  CHECK(every_third == Approx(10'000).margin(350));
  CHECK(stream.below(1, 9) == 0);
  CHECK_THROWS_AS(stream.below(0, 9), smelt::error);
}

TEST_CASE("128-bit products are exact", "[random]") {
  const auto check = [](std::uint64_t a, std::uint64_t b, std::uint64_t high, std::uint64_t low) {
    const auto product = smelt::detail::multiply128(a, b);
    CHECK(product.high == high);
    CHECK(product.low == low);
  };
  const std::uint64_t top = ~std::uint64_t{0};
  check(top, top, top - 1, 1);
  check(top, 2, 1, top - 1);
  check(0x123456789ABCDEF0u, 0xFEDCBA9876543210u, 0x121FA00AD77D7422u, 0x236D88FE5618CF00u);
}

TEST_CASE("a permutation sends every index to a different one", "[random]") {
  const random_stream stream(7, 8);
  for (std::uint64_t size = 1; size <= 300; ++size) {
    std::vector<bool> taken(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t to = smelt::permuted(i, size, stream);
      REQUIRE(to < size);
      REQUIRE_FALSE(taken[to]);
      taken[to] = true;
    }
  }
  CHECK_THROWS_WITH(smelt::permuted(7, 3, stream), "index of a permutation must be below its size of 3, found 7");
  CHECK_THROWS_AS(smelt::permuted(3, 3, stream), smelt::error);
  CHECK_THROWS_AS(smelt::permuted(0, 0, stream), smelt::error);
  const std::uint64_t huge = (std::uint64_t{1} << 62) + 12345;
  CHECK(smelt::permuted(huge - 1, huge, stream) < huge);
}

TEST_CASE("small permutations are all about equally likely", "[random]") {
  std::map<std::array<std::uint64_t, 4>, int> counts;
  constexpr int draws = 12'000;
  for (int i = 0; i < draws; ++i) {
    const random_stream stream(9, static_cast<std::uint64_t>(i));
    ++counts[{smelt::permuted(0, 4, stream), smelt::permuted(1, 4, stream), smelt::permuted(2, 4, stream),
              smelt::permuted(3, 4, stream)}];
  }
  REQUIRE(counts.size() == 24);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += (count - 500.0) * (count - 500.0) / 500.0;
  CHECK(chi_squared < 49.7);  // 23 degrees of freedom, p = 0.001
}

TEST_CASE("a large permutation scatters neighbours", "[random]") {
  constexpr std::uint64_t size = 10'007;
  const random_stream stream(10, 11);
  double distance = 0;
  std::uint64_t fixed = 0;
  std::uint64_t previous = smelt::permuted(0, size, stream);
  for (std::uint64_t i = 1; i < size; ++i) {
    const std::uint64_t to = smelt::permuted(i, size, stream);
    distance += std::fabs(static_cast<double>(to) - static_cast<double>(previous)) / static_cast<double>(size);
    fixed += to == i ? 1 : 0;
    previous = to;
  }
  CHECK(distance / static_cast<double>(size - 1) == Approx(1.0 / 3.0).margin(0.01));  // of two independent positions
  CHECK(fixed < 10);
}
