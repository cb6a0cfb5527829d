// Does a step move what it should, and measure what it moves?
#include <smelt/train/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <smelt/kernels/reference/backend.hpp>
#include <vector>

#include "catch.hpp"
#include "support/model_fixture.hpp"
#include "support/small_specs.hpp"

using namespace smelt;

TEST_CASE("the norm of all gradients does not overflow and names what is not finite", "[train]") {
  reference<float> backend;
  const spec s = smelt_test::tiny;
  weight_buffer<float> g(s);
  CHECK(norm_of(backend, g).norm == 0);
  for (std::size_t i = 0; i < 50; ++i) {
    g(weight::embedding).data[i] = 1e20F;
    g(weight::output, 1).data[i % 50] = 1e20F;
  }
  CHECK(norm_of(backend, g).norm == Approx(1e21).epsilon(1e-6));
  g(weight::expert_down, 1).data[3] = std::numeric_limits<float>::infinity();
  CHECK(norm_of(backend, g).not_finite == "layer 1 expert_down");
}

TEST_CASE("gradients neither move the balancing bias nor are measured there", "[train]") {
  reference<float> backend;
  spec s = smelt_test::tiny;
  s.experts.balance_bias = true;
  weight_buffer<float> g(s);
  g.vector(weight::balance_bias, 1)[2] = std::numeric_limits<float>::quiet_NaN();
  g.vector(weight::router, 1)[0] = 3;
  CHECK(norm_of(backend, g).norm == 3);
  weight_buffer<float> w = smelt_test::random_weights<float>(s);
  const weight_buffer<float> before = smelt_test::random_weights<float>(s);
  optimizer<float> adamw(s);
  adamw.apply(backend, {.weight_decay = 0}, 0.1, 1.0, 1, g, w);
  for (std::size_t e = 0; e < 4; ++e)
    CHECK(w.vector(weight::balance_bias, 1)[e] == before.vector(weight::balance_bias, 1)[e]);
  CHECK(w.vector(weight::router, 1)[0] == Approx(before.vector(weight::router, 1)[0] - 0.1F));
  CHECK(g.vector(weight::router, 1)[0] == 0);
  CHECK(std::isnan(g.vector(weight::balance_bias, 1)[2]));
}

TEST_CASE("the norm is of every weight, on both sides of each balancing bias", "[train]") {
  reference<float> backend;
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    weight_buffer<float> g = smelt_test::random_weights<float>(s);
    double squares = 0;
    g.layout().for_each([&](weight w, int layer, const weight_place& p) {
      if (w == weight::balance_bias) return;
      for (std::int64_t i = 0; i < p.size(); ++i) {
        const double x = g(w, layer < 0 ? 0 : layer).data[i];
        squares += x * x;
      }
    });
    CHECK(norm_of(backend, g).norm == Approx(std::sqrt(squares)).epsilon(1e-6));
  }
}

TEST_CASE("an update moves every weight by its own decay, in few ranges", "[train]") {
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_layout layout(s);
    const std::vector<parameter_range> ranges = moved_by(optimizer_kind::adamw, layout).ranges;
    // By element: -1 is not moved, or whether it is decayed.
    std::vector<int> found(static_cast<std::size_t>(layout.size()), -1);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const parameter_range& r = ranges[i];
      REQUIRE(r.size > 0);
      if (i > 0) {
        const std::int64_t end = ranges[i - 1].first + ranges[i - 1].size;
        REQUIRE(r.first >= end);
        CHECK((r.first > end || r.decayed != ranges[i - 1].decayed));
      }
      std::fill_n(found.begin() + r.first, r.size, r.decayed ? 1 : 0);
    }
    layout.for_each([&](weight w, int layer, const weight_place& p) {
      INFO(describe(s, w, layer));
      const int expected = w == weight::balance_bias ? -1 : is_decayed(w) ? 1 : 0;
      CHECK(std::all_of(found.begin() + p.offset, found.begin() + p.offset + p.size(),
                        [&](int f) { return f == expected; }));
    });
  }
}

TEST_CASE(
    "Muon moves the matrices between embedding and head, every expert's and head's by themselves, and AdamW the rest",
    "[train]") {
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_layout layout(s);
    const moved_weights moved = moved_by(optimizer_kind::muon, layout);
    std::vector<int> movers(static_cast<std::size_t>(layout.size()), 0);  // 1: AdamW, 2: Muon, 3: both
    for (const parameter_range& r : moved.ranges)
      for (std::int64_t i = r.first; i < r.first + r.size; ++i) movers[static_cast<std::size_t>(i)] += 1;
    for (const matrix_range& m : moved.matrices)
      for (std::int64_t i = m.first; i < m.first + m.rows * m.cols; ++i) movers[static_cast<std::size_t>(i)] += 2;
    layout.for_each([&](weight w, int layer, const weight_place& p) {
      INFO(describe(s, w, layer));
      const bool is_edge = w == weight::embedding || w == weight::head || w == weight::router;
      const int expected = w == weight::balance_bias ? 0 : is_edge || !is_decayed(w) ? 1 : 2;
      CHECK(std::all_of(movers.begin() + p.offset, movers.begin() + p.offset + p.size(),
                        [&](int m) { return m == expected; }));
      if (expected != 2) return;
      const bool is_of_experts = w == weight::expert_gate || w == weight::expert_up || w == weight::expert_down;
      const bool is_of_kv_heads = w == weight::key || w == weight::value;
      const int parts = is_of_experts        ? s.experts.stored
                        : is_of_kv_heads     ? s.attention.kv_heads
                        : w == weight::query ? s.attention.heads
                                             : 1;
      const auto inside = [&](const matrix_range& m) { return m.first >= p.offset && m.first < p.offset + p.size(); };
      CHECK(std::count_if(moved.matrices.begin(), moved.matrices.end(), inside) == parts);
    });
  }
}

TEST_CASE("an optimizer refuses options for another one, and changes nothing", "[train]") {
  reference<float> backend;
  const spec s = smelt_test::tiny;
  weight_buffer<float> g = smelt_test::random_weights<float>(s);
  weight_buffer<float> w = smelt_test::random_weights<float>(s);
  const weight_buffer<float> before = smelt_test::random_weights<float>(s);
  optimizer<float> adamw(s);
  CHECK_THROWS_WITH(adamw.apply(backend, {.optimizer = optimizer_kind::muon}, 0.1, 1.0, 1, g, w),
                    "the options want the optimizer muon, this one was made as adamw");
  optimizer<float> muon(s, optimizer_kind::muon);
  CHECK_THROWS_WITH(muon.apply(backend, {}, 0.1, 1.0, 1, g, w),
                    "the options want the optimizer adamw, this one was made as muon");
  CHECK(std::equal(w.all().begin(), w.all().end(), before.all().begin()));
  CHECK(std::equal(g.all().begin(), g.all().end(), before.all().begin()));
}

TEST_CASE("every weight is described by its own name", "[train]") {
  spec s = smelt_test::tiny;
  s.layers = 4;
  s.loop = {.count = 2, .visits = visit_list{}.then({}).then({.own_attention = true}, 2)};
  CHECK(describe(s, weight::embedding, -1) == "embedding");
  CHECK(describe(s, weight::attention_norm, 0) == "layer 0 attention_norm");
  CHECK(describe(s, weight::query, 1) == "layer 1 query");
  CHECK(describe(s, weight::key, 0) == "layer 0 key");
  CHECK(describe(s, weight::value, 0) == "layer 0 value");
  CHECK(describe(s, weight::query_norm, 0) == "layer 0 query_norm");
  CHECK(describe(s, weight::key_norm, 0) == "layer 0 key_norm");
  CHECK(describe(s, weight::output, 0) == "layer 0 output");
  CHECK(describe(s, weight::ffn_norm, 0) == "layer 0 ffn_norm");
  CHECK(describe(s, weight::router, 0) == "layer 0 router");
  CHECK(describe(s, weight::balance_bias, 0) == "layer 0 balance_bias");
  CHECK(describe(s, weight::expert_gate, 0) == "layer 0 expert_gate");
  CHECK(describe(s, weight::expert_up, 0) == "layer 0 expert_up");
  CHECK(describe(s, weight::expert_down, 0) == "layer 0 expert_down");
  CHECK(describe(s, weight::shared_gate, 0) == "layer 0 shared_gate");
  CHECK(describe(s, weight::shared_up, 0) == "layer 0 shared_up");
  CHECK(describe(s, weight::shared_down, 0) == "layer 0 shared_down");
  CHECK(describe(s, weight::dense_gate, 0) == "layer 0 dense_gate");
  CHECK(describe(s, weight::dense_up, 0) == "layer 0 dense_up");
  CHECK(describe(s, weight::dense_down, 0) == "layer 0 dense_down");
  CHECK(describe(s, weight::final_norm, -1) == "final_norm");
  CHECK(describe(s, weight::head, -1) == "head");
  CHECK(describe(s, weight::coefficient, 1) == "visit 1 coefficient");
  CHECK(describe(s, weight::writeback, 0) == "visit 0 writeback");
  CHECK(describe(s, weight::stream_up, 2) == "visit 2 stream_up");
  CHECK(describe(s, weight::query, 5) == "visit 1 layer 2 query");
  CHECK(describe(s, weight::output, 6) == "visit 2 layer 1 output");
}
