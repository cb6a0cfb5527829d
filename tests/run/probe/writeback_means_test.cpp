// Are the means those of the coefficients that receivers get?
#include <smelt/probe/writeback_means.hpp>

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

namespace {

spec compressed(int factor, writeback_kind writeback) {
  spec s = smelt_test::tiny;
  s.width = 4;
  s.layers = 4;
  s.loop = {.count = loop_spec::half,
            .visits = visit_list{}.then({.compression = factor, .writeback = writeback}).then(visit_plan{})};
  return s;
}

std::vector<double> means_of(int factor, writeback_kind writeback, const std::vector<float>& coefficients) {
  const spec s = compressed(factor, writeback);
  weight_buffer<float> w(s);
  const std::span<float> to = w.vector(weight::writeback, 0);
  REQUIRE(to.size() == coefficients.size());
  std::copy(coefficients.begin(), coefficients.end(), to.begin());
  CHECK(writeback_means(s, w, 1).empty());
  return writeback_means(s, w, 0);
}

}  // namespace

TEST_CASE("a writeback's means are one number a receiver, near to far", "[probe][writeback]") {
  CHECK(means_of(2, writeback_kind::scaled, {1, 2, 3, 6, -1, 0, 1, 2}) == std::vector<double>{3, 0.5});
  CHECK(means_of(3, writeback_kind::scalar, {1, 0.5F, -2}) == std::vector<double>{1, 0.5, -2});
  CHECK(means_of(2, writeback_kind::direct, {}) == std::vector<double>{1, 1});
  const std::vector<double> normalised = means_of(2, writeback_kind::normalised, {3, 3, 3, 3, 1, -1, 1, 5});
  CHECK(normalised[0] == Approx(1));
  CHECK(normalised[1] == Approx(1.5 / std::sqrt(7.0)));
  CHECK(means_of(2, writeback_kind::normalised, {0, 0, 0, 0, 1, 1, 1, 1})[0] == 0);
}

TEST_CASE("a writeback starts at 1 for every receiver", "[probe][writeback]") {
  for (const writeback_kind kind :
       {writeback_kind::direct, writeback_kind::scaled, writeback_kind::scalar, writeback_kind::normalised}) {
    const spec s = compressed(4, kind);
    weight_buffer<double> w(s);
    initialise(w, s, 1);
    for (const double mean : writeback_means(s, w, 0)) CHECK(mean == Approx(1));
  }
}
