// Are exp and log of packs as good as the C library's, and do NaN and infinity pass through them?
#include <cmath>
#include <limits>
#include <smelt/core/random.hpp>
#include <smelt/law/pack.hpp>

#include "catch.hpp"

using smelt::law::pack;

TEST_CASE("exp, log and expm1 of packs are right to two units in the last place", "[law]") {
  const smelt::random_stream random(1, 0);
  constexpr double unit = std::numeric_limits<double>::epsilon();
  double worst_exp = 0;
  double worst_log = 0;
  double worst_expm1 = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const double x =
        (random.uniform(2 * i) - 0.5) * std::ldexp(1.0, static_cast<int>(random.below(21, 2 * i + 1)) - 10);
    const int lane = static_cast<int>(i % 8);
    pack packed(1.0);
    packed.v[lane] = x;
    worst_exp = std::fmax(worst_exp, std::fabs(exp(packed).v[lane] / std::exp(x) - 1));
    if (x != 0) worst_expm1 = std::fmax(worst_expm1, std::fabs(expm1(packed).v[lane] / std::expm1(x) - 1));
    const double y = std::exp(x);
    packed.v[lane] = y;
    if (y != 1) worst_log = std::fmax(worst_log, std::fabs(log(packed).v[lane] / std::log(y) - 1));
  }
  CHECK(worst_exp <= 2 * unit);
  CHECK(worst_log <= 2 * unit);
  CHECK(worst_expm1 <= 4 * unit);
}

TEST_CASE("A NaN stays a NaN, and the ends of the range are as in the C library", "[law]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto exp_of = [](double x) { return exp(pack(x)).v[3]; };
  const auto log_of = [](double x) { return log(pack(x)).v[3]; };
  CHECK(std::isnan(exp_of(nan)));
  CHECK(std::isnan(log_of(nan)));
  CHECK(std::isnan(expm1(pack(nan)).v[0]));
  CHECK(std::isnan(exp_of_negative(pack(nan)).v[0]));
  CHECK(std::isnan(limited(pack(nan), -1.0, 1.0).v[0]));
  CHECK(std::isnan(log_of(-1)));
  CHECK(exp_of(infinity) == infinity);
  CHECK(exp_of(710) == infinity);
  CHECK(exp_of(709.78) == Approx(std::exp(709.78)).epsilon(1e-14));
  CHECK(exp_of(-infinity) == 0);
  CHECK(exp_of(-1000) == 0);
  CHECK(exp_of(0) == 1);
  CHECK(log_of(1) == 0);
  CHECK(log_of(0) == -infinity);
  CHECK(log_of(infinity) == infinity);
}
