// Do budgets count the weights that a model lays out, whatever its visits are?
#include <smelt/budget/ablations.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/model/weight_layout.hpp>
#include <smelt/spec/rules.hpp>

#include "catch.hpp"
#include "support/random_specs.hpp"
#include "support/small_specs.hpp"

namespace {

using namespace smelt;

TEST_CASE("a model lays out exactly the parameters that are counted") {
  for (const smelt_test::named_spec& one : smelt_test::executable_variants()) {
    INFO(one.name);
    CHECK(weight_layout(one.value).parameters() == parameters(one.value).total);
  }
  for (const smelt_test::named_spec& one : smelt_test::visit_variants()) {
    INFO(one.name);
    CHECK(weight_layout(one.value).parameters() == parameters(one.value).total);
  }
  for (const presets::preset& p : presets::all) {
    INFO(p.name);
    CHECK(weight_layout(p.value).parameters() == parameters(p.value).total);
  }
  for (int i = 0; i < presets::ablations; ++i) {
    const presets::preset p = presets::ablation(i);
    INFO(p.name);
    CHECK(weight_layout(p.value).parameters() == parameters(p.value).total);
  }
}

TEST_CASE("so it does for random plans, with dense layers in the span and without") {
  testing::random_specs draw(61);
  int plans = 0;
  for (int i = 0; i < 300; ++i) {
    spec s = smelt_test::tiny;
    s.layers = draw.between(1, 6);
    s.width = 2 * draw.between(1, 12);
    s.experts.shared_hidden = draw.flip() ? 5 : 0;
    s.experts.balance_bias = draw.flip();
    s.attention.norm = static_cast<qk_norm>(draw.between(0, 2));
    s.dense_layers = draw.between(0, s.layers);
    s.dense_hidden = 7;
    s.tied_head = draw.flip();
    s.loop.first = draw.between(0, s.layers - 1);
    s.loop.count = draw.between(1, s.layers - s.loop.first);
    const int runs = draw.between(1, max_plans);
    for (int r = 0; r < runs; ++r) s.loop.visits = s.loop.visits.then(draw.plan_for(s), draw.between(1, 2));
    REQUIRE(is_valid(s));
    REQUIRE(weight_layout(s).parameters() == parameters(s).total);
    plans += s.loop.visits.runs();
  }
  CHECK(plans > 600);
}

}  // namespace
