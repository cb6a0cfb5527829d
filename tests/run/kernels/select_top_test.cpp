// Which values are the greatest, when some are not numbers?
#include <smelt/kernels/reference/route.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "catch.hpp"

TEST_CASE("a NaN ranks below every number and yields valid, distinct ids where there are not enough of them",
          "[route]") {
  const double nan = std::nan("");
  const std::vector<double> values{nan, 1, nan, 3};
  const auto top = [&](std::size_t k) {
    std::vector<std::int32_t> ids(k, -1);
    std::vector<double> best(k);
    smelt::reference_ops::detail::select_top<double>(
        4, [&](std::int64_t e) { return values[static_cast<std::size_t>(e)]; }, ids, best);
    return ids;
  };
  CHECK(top(1) == std::vector<std::int32_t>{3});
  CHECK(top(2) == std::vector<std::int32_t>{3, 1});
  CHECK(top(4) == std::vector<std::int32_t>{3, 1, 0, 2});
}
