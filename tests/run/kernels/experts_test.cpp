// Do experts without tokens stay exactly as they were, step after step, whatever is left in memory?
#include "support/backends.hpp"
#include "support/op_table.hpp"

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

TEMPLATE_TEST_CASE("idle experts keep their gradients' bits and nothing becomes NaN", "[experts]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::test::experts_case c(4, 256, 2, 24, 20);
  smelt::test::arrays<scalar> in = smelt::test::rounded_inputs<scalar>(c);
  smelt::test::arrays<scalar> dout = smelt::test::rounded<scalar>(smelt::test::output_gradients(c));
  for (int step = 1; step <= 3; ++step) {
    if constexpr (std::is_same_v<TestType, smelt::test::cpu_backend>) backend.fill_scratch(std::byte{0xFF});
    smelt::test::arrays<scalar> out = smelt::test::empty_outputs<scalar>(c);
    smelt::test::arrays<scalar> din(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) din[i].assign(in[i].size(), scalar{0});
    c.forward(backend, in, out);
    c.backward(backend, in, out, dout, din);
    for (const auto& arrays : {out, din}) {
      for (const std::vector<scalar>& values : arrays) {
        for (const scalar value : values) REQUIRE(std::isfinite(value));
      }
    }
    int idle = 0;
    const auto per_expert = static_cast<std::int64_t>(24 * 20);
    for (std::int64_t e = 0; e < 256; ++e) {
      const bool used = c.offsets[e] != c.offsets[e + 1];
      idle += used ? 0 : 1;
      for (std::size_t matrix = 1; matrix <= 3; ++matrix) {
        double sum = 0;
        for (std::int64_t i = 0; i < per_expert; ++i) sum += std::fabs(double(din[matrix][e * per_expert + i]));
        CHECK((sum != 0) == used);
      }
    }
    CHECK(idle >= 248);
    // The weights move, so that every step is a new one.
    for (std::size_t matrix = 1; matrix <= 3; ++matrix) {
      for (std::size_t i = 0; i < in[matrix].size(); ++i) in[matrix][i] -= scalar{0.01F} * din[matrix][i];
    }
  }
}

TEMPLATE_TEST_CASE("one expert with weight 1 is a scaled dense feed-forward added to the residual", "[experts]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::test::experts_case c(9, 1, 1, 5, 7);
  smelt::test::arrays<scalar> in = smelt::test::rounded_inputs<scalar>(c);
  std::fill(in[4].begin(), in[4].end(), scalar{1});
  smelt::test::arrays<scalar> out = smelt::test::empty_outputs<scalar>(c);
  c.forward(backend, in, out);
  for (std::size_t t = 0; t < 9; ++t) {
    for (std::size_t h = 0; h < 5; ++h) {
      double y = 0;
      for (std::size_t j = 0; j < 7; ++j) {
        double gate = 0;
        double up = 0;
        for (std::size_t i = 0; i < 5; ++i) {
          gate += double(in[0][t * 5 + i]) * double(in[1][j * 5 + i]);
          up += double(in[0][t * 5 + i]) * double(in[2][j * 5 + i]);
        }
        y += gate / (1 + std::exp(-gate)) * up * double(in[3][h * 7 + j]);
      }
      CHECK(double(out[0][t * 5 + h]) == Approx(double(in[5][t * 5 + h]) + c.scale * y).margin(1e-5));
    }
  }
}

TEMPLATE_TEST_CASE("the residual may be the array that the result is written to", "[experts]", SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  for (const int active : {1, 2}) {
    const smelt::test::experts_case c(37, 3, active, 20, 12);
    smelt::test::arrays<scalar> in = smelt::test::rounded_inputs<scalar>(c);
    smelt::test::arrays<scalar> apart = smelt::test::empty_outputs<scalar>(c);
    smelt::test::arrays<scalar> same = smelt::test::empty_outputs<scalar>(c);
    c.forward(backend, in, apart);
    same[0] = in[5];
    const auto view = [](std::vector<scalar>& v, int cols) { return smelt::test::as_matrix(v, cols); };
    backend.experts(c.shape, c.scale, view(same[0], 20), view(in[0], 20), view(in[1], 20), view(in[2], 20),
                    view(in[3], 12), c.grouping(), view(in[4], active), view(same[1], 12), view(same[2], 12),
                    view(same[0], 20));
    CHECK(same == apart);
  }
}

TEST_CASE("kept copies of the experts' weights give what copies for one call give, and serve both directions twice",
          "[experts]") {
  for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
    smelt::cpu packing{smelt::threads_executor(2), variant.compute, variant.set};
    smelt::cpu keeping{smelt::threads_executor(3), variant.compute, variant.set};
    // More rows than a task takes, fewer than few, whole and ragged vectors, an expert with most of the rows.
    for (const auto& c : {smelt::test::experts_case(700, 5, 2, 33, 17), smelt::test::experts_case(8, 3, 1, 16, 32),
                          smelt::test::experts_case(3, 24, 2, 33, 17), smelt::test::experts_case(1, 24, 4, 16, 16),
                          smelt::test::experts_case(3000, 3, 1, 8, 16, smelt::test::traffic::collapsed)}) {
      INFO(variant.name() << " " << c.variant);
      const auto expected = smelt::test::run_case(c, packing);
      // One array of weights for both rounds: held weights do not move.
      smelt::test::arrays<float> in = smelt::test::rounded_inputs<float>(c);
      const auto run = [&] {
        smelt::test::op_results<float> results{smelt::test::empty_outputs<float>(c), {}};
        c.forward(keeping, in, results.outputs);
        auto dout = smelt::test::rounded<float>(smelt::test::output_gradients(c));
        results.gradients = smelt::test::rounded<float>(smelt::test::gradients_before(c));
        c.backward(keeping, in, results.outputs, dout, results.gradients);
        return results;
      };
      const auto hold = keeping.hold_weights();
      const auto first = run();
      const auto second = run();
      CHECK(first.outputs == second.outputs);
      for (std::size_t i = 0; i < first.gradients.size(); ++i) {
        if (c.inputs[i].kind == smelt::test::gradient::none) continue;  // NaN
        CHECK(first.gradients[i] == second.gradients[i]);
        CHECK(first.gradients[i] == expected.gradients[i]);
      }
      CHECK(first.outputs == expected.outputs);
    }
  }
}

TEMPLATE_TEST_CASE("a grouping that would lead outside the arguments is refused", "[experts][check]",
                   SMELT_HOST_BACKENDS) {
  using scalar = typename TestType::scalar;
  TestType backend = smelt::test::make_backend<TestType>();
  const smelt::test::experts_case good(6, 3, 2, 5, 4);
  smelt::test::arrays<scalar> in = smelt::test::rounded_inputs<scalar>(good);
  smelt::test::arrays<scalar> out = smelt::test::empty_outputs<scalar>(good);
  const auto refused = [&](auto change, const char* words) {
    smelt::test::experts_case bad = good;
    change(bad);
    CHECK_THROWS_WITH(bad.forward(backend, in, out), words);
    for (const std::vector<scalar>& values : out)  // outputs start as NaN
      CHECK(std::all_of(values.begin(), values.end(), [](scalar v) { return std::isnan(v); }));
  };
  refused([](auto& c) { c.offsets[0] = 1; }, "experts: grouping.offsets[0] is 1, needs 0 to 0");
  refused([](auto& c) { c.offsets[3] = 13; }, "experts: grouping.offsets[3] is 13, needs 12 to 12");
  refused([](auto& c) { c.offsets[3] = 11; }, "experts: grouping.offsets[3] is 11, needs 12 to 12");
  refused([](auto& c) { c.offsets[1] = -1; }, "experts: grouping.offsets[1] is -1, needs 0 to 12");
  refused([](auto& c) { c.offsets[1] = 99; }, "experts: grouping.offsets[1] is 99, needs 0 to 12");
  refused([](auto& c) { c.assignment[2] = 12; }, "experts: grouping.assignment[2] is 12, needs 0 to 11");
  refused([](auto& c) { c.row[7] = -3; }, "experts: grouping.row[7] is -3, needs 0 to 11");
}
