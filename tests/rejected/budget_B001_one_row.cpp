// expect: \[smelt-B001\] budget: the two figures must agree within the tolerance
// expect: metric::params,.*actual<3916463360L*>.*expected<3872226560L*>.*ratio_in_ppm<1011424L*>
// expect: ratio_in_ppm<1011424L*>.*tolerance_in_ppm<10000L*>
// max-lines: 10
#include <smelt/budget/check.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

// Over 1 % more parameters at nearly the same FLOPs.
struct larger : arch<spec{.vocab = 32'000,
                          .context = 2'048,
                          .width = 1'280,
                          .layers = 12,
                          .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
#ifdef CONTROL
                          .experts = {.stored = 193, .active = 8, .hidden = 432}
#else
                          .experts = {.stored = 192, .active = 8, .hidden = 437}
#endif
                }> {
};

static_assert(budgets_match<larger, base, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}>::passed);
