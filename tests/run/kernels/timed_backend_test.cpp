#include <cstdint>
#include <cstring>
#include <smelt/kernels/reference/backend.hpp>
#include <smelt/kernels/timed_backend.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/op_table.hpp"

using namespace smelt;

static_assert(Backend<timed<reference<double>>>);
static_assert(Backend<timed<timed<reference<float>>>>);

TEST_CASE("a timed backend computes what the one inside it computes", "[kernels][timed]") {
  test::for_each_case([](const auto& c) {
    INFO(c.op << " " << c.variant);
    reference<float> inside;
    timed<reference<float>> clocked(inside);
    const auto plain = test::run_case(c, inside);
    const auto found = test::run_case(c, clocked);
    // Bitwise, since a NaN of an output that nothing wrote is a number like any other here.
    const auto same = [](const test::arrays<float>& a, const test::arrays<float>& b) {
      if (a.size() != b.size()) return false;
      for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
          return false;
      return true;
    };
    CHECK(same(plain.outputs, found.outputs));
    CHECK(same(plain.gradients, found.gradients));
    REQUIRE(!clocked.times().empty());
    CHECK(clocked.times().front().op == c.op);
    CHECK(clocked.times().front().calls == 1);
    CHECK(clocked.times().front().seconds > 0);
    CHECK(clocked.times().front().flop == c.forward_flops);
    CHECK(clocked.times().front().bytes > 0);
  });
}

TEST_CASE("a backend is clocked by wrapping it", "[kernels][timed]") {
  const std::vector<float> x(5 * 7, 1.0F), w(3 * 7, 1.0F);
  std::vector<float> y(5 * 3);
  std::ostringstream out;
  // [clocks]
  smelt::reference<float> backend;
  smelt::timed<smelt::reference<float>> clocked(backend);
  // Ops and whole models run on `clocked` as they would on `backend`.
  clocked.linear(smelt::linear_shape{.in = 7, .out = 3}, smelt::matrix_view<const float>(x.data(), 5, 7),
                 smelt::matrix_view<const float>(w.data(), 3, 7), smelt::matrix_view<float>(y.data(), 5, 3));
  for (const smelt::op_time& t : clocked.times())
    out << t.op << ": " << t.calls << " calls, " << t.seconds << " s, " << t.flop << " FLOPs\n";
  // [/clocks]
  CHECK_THAT(out.str(),
             Catch::Matchers::StartsWith("linear: 1 calls, ") && Catch::Matchers::EndsWith(" s, 210 FLOPs\n"));
  CHECK(y.back() == 7);
}

TEST_CASE("clocks count calls and work until they are set to zero", "[kernels][timed]") {
  reference<float> inside;
  timed<reference<float>> clocked(inside);
  const test::linear_case product(5, 7, 3);
  for (int i = 0; i < 4; ++i) static_cast<void>(test::run_case(product, clocked));
  static_cast<void>(clocked.norm(std::vector<float>(10)));
  REQUIRE(clocked.times().size() == 4);
  const double flop = 2.0 * 5 * 7 * 3;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(clocked.times()[i].calls == 4);
    CHECK(clocked.times()[i].flop == 4 * flop);
    CHECK(clocked.times()[i].bytes == 4 * 4.0 * (5 * 7 + 7 * 3 + 5 * 3));
  }
  CHECK(clocked.times()[3].op == "norm");
  CHECK(clocked.times()[3].flop == 0);
  clocked.reset();
  CHECK(clocked.times()[0].op == "linear");
  CHECK(clocked.times()[0].calls == 0);
  CHECK(clocked.times()[0].seconds == 0);
  CHECK(clocked.times()[0].flop == 0);
}
