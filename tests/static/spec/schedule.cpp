// Is the executed schedule entry layers once, the span visit by visit, exit layers once?
#include <smelt/spec/published.hpp>
#include <smelt/spec/schedule.hpp>

namespace {

using namespace smelt;

constexpr spec with_loop(int layers, loop_spec loop) {
  spec s;
  s.layers = layers;
  s.loop = loop;
  return s;
}
constexpr int size_of(const spec& s) {
  return schedule(s).size();
}

// 12 layers, the middle 6 twice: 18 executed layers.
constexpr schedule smelt_run(published::smelt_200m::value);
static_assert(smelt_run.size() == 18);
static_assert(span_of(published::smelt_200m::value) == loop_span{3, 6, 2});
static_assert(smelt_run[0] == executed_layer{.index = 0, .layer = 0, .kv_slot = 0});
static_assert(smelt_run[3] == executed_layer{.index = 3,
                                             .layer = 3,
                                             .visit = 0,
                                             .in_loop = true,
                                             .enters = true,
                                             .attention = 3,
                                             .kv_slot = 3,
                                             .plan = {.residual = {1, 2}}});
static_assert(!smelt_run[3].leaves && !smelt_run[7].enters && smelt_run[8].leaves && smelt_run[9].enters);
static_assert(smelt_run[8].layer == 8 && smelt_run[8].visit == 0);
// The whole span, then the whole span again; not layer by layer.
static_assert(smelt_run[9].layer == 3 && smelt_run[9].visit == 1 && smelt_run[9].kv_slot == 9);
static_assert(smelt_run[14].layer == 8 && smelt_run[14].in_loop);
static_assert(smelt_run[15] == executed_layer{.index = 15, .layer = 9, .attention = 9, .kv_slot = 15});
static_assert(smelt_run[17].layer == 11);

// A span that is not centred exactly starts at floor((L - m) / 2).
static_assert(span_of(with_loop(7, middle_twice)) == loop_span{2, 3, 2});
// The whole model, sixteen times.
static_assert(size_of(with_loop(4, {.first = 0, .count = 4, .visits = visits(16)})) == 64);
// One visit is the plain model, with the visit's coefficient.
static_assert(size_of(with_loop(4, {.first = 1, .count = 2, .visits = visits(1)})) == 4);
static_assert(size_of(with_loop(5, {})) == 5);
// 256 layers, 16 visits: more than the default limit of a constant evaluation could walk layer by layer many times
// over.
static_assert(size_of(with_loop(256, {.first = 0, .count = 256, .visits = visits(16)})) == 4'096);

// Every pair of layer and visit has a KV slot of its own.
constexpr bool slots_are_unique(const spec& s) {
  int next = 0;
  for (const executed_layer e : schedule(s))
    if (e.kv_slot != next++) return false;
  return next == schedule(s).size();
}
static_assert(slots_are_unique(published::smelt_600m::value));

// A latent visit works on floor(T / c) positions: a trailing partial chunk forms none.
constexpr executed_layer latent{.plan = {.compression = 2}};
static_assert(executed_positions(latent, 1) == 0 && executed_positions(latent, 2) == 1);
static_assert(executed_positions(latent, 3) == 1 && executed_positions(latent, 8) == 4);
static_assert(executed_positions(latent, 9) == 4 && executed_positions({}, 9) == 9);

// Attention of a visit's own lies behind the layers, one copy of the span a visit; the others share the span's.
constexpr visit_list mixed = visit_list{}.then({}, 2).then({.own_attention = true}, 2).then({});
static_assert(attention_copy_of(mixed, 0) == -1 && attention_copy_of(mixed, 1) == -1);
static_assert(attention_copy_of(mixed, 2) == 0 && attention_copy_of(mixed, 3) == 1 &&
              attention_copy_of(mixed, 4) == -1);
constexpr spec with_mixed = with_loop(6, {.first = 2, .count = 2, .visits = mixed});
static_assert(schedule(with_mixed)[4].attention == 2 && schedule(with_mixed)[7].attention == 7);
static_assert(schedule(with_mixed)[8].attention == 8 && schedule(with_mixed)[9].attention == 9);
static_assert(schedule(with_mixed)[10].attention == 2 && schedule(with_mixed)[12].attention == 4);
// When every visit has its own, the first one takes the span's.
constexpr visit_list all_own = visits(3, {.own_attention = true});
static_assert(attention_copy_of(all_own, 0) == -1 && attention_copy_of(all_own, 1) == 0);
static_assert(attention_copy_of(all_own, 2) == 1);

}  // namespace
