// Are visits and layer sets what they say, at compile time?
#include <smelt/spec/layer_set.hpp>
#include <smelt/spec/visit.hpp>

namespace {

using namespace smelt;

static_assert(visits(2).count == 2 && visits(2)[0].residual == ratio{1, 2} && visits(2)[1].residual == ratio{1, 2});
static_assert(visits(3, {.residual = {1, 1}})[2].residual == ratio{});
static_assert(ratio{1, 4}.as<double>() == 0.25);
static_assert(is_uniform(visits(8)) && is_uniform(visit_list{}));
constexpr visit_list uneven = visit_list{}.then({.residual = {1, 4}, .compression = 2}).then({.own_attention = true});
static_assert(uneven.count == 2 && !is_uniform(uneven));
static_assert(largest_compression(uneven) == 2 && largest_compression(visit_list{}) == 1);
static_assert(uneven[1].own_attention && uneven[1].compression == 1);
// A ninth visit is counted, so that the rule can refuse it, and stored nowhere.
static_assert(visits(9).count == 9 && visits(9, {}).then({})[7] == visit_plan{});

static_assert(layer_set{}.empty() && !layer_set{}.with(255).empty());
static_assert(layer_set{}.with(0)[0] && layer_set{}.with(64)[64] && layer_set{}.with(200)[200]);
static_assert(!layer_set{}.with(64)[0] && !layer_set{}.with(64)[128] && !layer_set{}.with(3)[-1]);
static_assert(layer_set{}.with(-1).empty() && layer_set{}.with(256).empty());
static_assert(every_layer(2).count_below(24) == 12 && every_layer(2, 1).count_below(24) == 12);
static_assert(every_layer(6, 5)[5] && every_layer(6, 5)[11] && !every_layer(6, 5)[6]);
static_assert(every_layer(1).count_below(256) == 256 && every_layer(0).empty());

}  // namespace
