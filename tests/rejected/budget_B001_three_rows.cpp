// expect: \[smelt-B001\] budget: the two figures must agree within the tolerance
// expect: metric::flops,.*actual<2123481600L*>.*expected<1690920960L*>.*ratio_in_ppm<1255814L*>
// expect: metric::params,.*actual<4660827648L*>.*expected<3872226560L*>.*ratio_in_ppm<1203656L*>
// expect: actual<4660827648L*>.*tolerance_in_ppm<10000L*>
// expect: metric::kv_cache,.*actual<15360L*>.*expected<12288L*>.*ratio_in_ppm<1250000L*>
// expect: actual<15360L*>.*tolerance_in_ppm<40000L*>
// max-lines: 10
#include <smelt/budget/check.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

struct wider : arch<spec{.vocab = 32'000,
                         .context = 2'048,
                         .width = 1'536,
                         .layers = 12,
                         .attention = {.heads = 20, .kv_heads = 4, .head_dim = 80},
                         .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

#ifdef CONTROL
static_assert(!BudgetsMatch<wider, base>);
#else
static_assert(budgets_match<wider, base, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}>::passed);
#endif
