// Are visits and layer sets what they say, at compile time?
#include <smelt/spec/layer_set.hpp>
#include <smelt/spec/visit.hpp>

namespace {

using namespace smelt;

static_assert(visits(2).count == 2 && visits(2)[0].residual == ratio{1, 2} && visits(2)[1].residual == ratio{1, 2});
static_assert(visits(3, {.residual = {1, 1}})[2].residual == ratio{});
static_assert(ratio{1, 4}.as<double>() == 0.25);
static_assert(is_uniform(visits(16)) && is_uniform(visit_list{}));
constexpr visit_list uneven = visit_list{}.then({.residual = {1, 4}, .compression = 2}).then({.own_attention = true});
static_assert(uneven.count == 2 && !is_uniform(uneven));
static_assert(largest_compression(uneven) == 2 && largest_compression(visit_list{}) == 1);
static_assert(uneven[1].own_attention && uneven[1].compression == 1);
// Visits by the same plan are one run, however they are added.
static_assert(visits(9).runs() == 1 && visits(2, {}).then({}).then({}, 3) == visits(6, {}));
static_assert(visit_list{}.then({}, 0) == visit_list{} && visit_list{}.then({}, -3) == visit_list{});
constexpr visit_list deep = visit_list{}.then({.compression = 2}, 3).then({.learned = true}).then({}, 12);
static_assert(deep.count == 16 && deep.runs() == 3 && deep[0].compression == 2 && deep[2].compression == 2);
static_assert(deep[3].learned && deep[4] == visit_plan{} && deep[15] == visit_plan{} && deep[99] == visit_plan{});
static_assert(deep.with(3, {}) == visit_list{}.then({.compression = 2}, 3).then({}, 13));
static_assert(deep.with(1, {}).runs() == 5 && deep.with(1, {})[2].compression == 2 && deep.with(1, {}).count == 16);
// A ninth run is counted, so that the rule can refuse it, and stored nowhere.
constexpr visit_list too_many_runs = [] {
  visit_list list;
  for (int i = 1; i <= 9; ++i) list = list.then({.compression = i});
  return list;
}();
static_assert(too_many_runs.count == 9 && too_many_runs.runs() == 8 && too_many_runs[8].compression == 8);
// Runs that were written by hand may repeat a plan.
static_assert(is_uniform(visit_list{.count = 2, .n0 = 1, .n1 = 1}));

static_assert(is_whole({}) && is_whole({3, 3}) && !is_whole({1, 2}));
static_assert(part_of(1'280, {1, 2}) == 640 && part_of(12, {2, 3}) == 8 &&
              part_of(2'000'000'000, {3, 4}) == 1'500'000'000);
static_assert(is_plain({.residual = {1, 4}, .own_attention = true, .active = 2, .expert_hidden = {1, 2}}));
static_assert(!is_plain({.compression = 2}) && !is_plain({.stream = {1, 2}}));

static_assert(layer_set{}.empty() && !layer_set{}.with(255).empty());
static_assert(layer_set{}.with(0)[0] && layer_set{}.with(64)[64] && layer_set{}.with(200)[200]);
static_assert(!layer_set{}.with(64)[0] && !layer_set{}.with(64)[128] && !layer_set{}.with(3)[-1]);
static_assert(layer_set{}.with(-1).empty() && layer_set{}.with(256).empty());
static_assert(every_layer(2).count_below(24) == 12 && every_layer(2, 1).count_below(24) == 12);
static_assert(every_layer(6, 5)[5] && every_layer(6, 5)[11] && !every_layer(6, 5)[6]);
static_assert(every_layer(1).count_below(256) == 256 && every_layer(0).empty());

}  // namespace
