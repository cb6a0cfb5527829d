// expect: \[smelt-B003\] budget: the figure must not pass the limit
// expect: metric::params,.*actual<3954146560L*>.*most<3000000000L*>
// expect: metric::kv_cache,.*actual<12288L*>.*most<10000L*>
// max-lines: 10
#include <smelt/budget/check.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

#ifdef CONTROL
static_assert(within_budget<base, at_most{.params = 4'000'000'000, .kv_cache = 12'288}>::passed);
#else
static_assert(within_budget<base, at_most{.params = 3'000'000'000, .kv_cache = 10'000}>::passed);
#endif
