// expect: \[smelt-B002\] budget: the FLOPs convention must cover the architecture
// expect: uncovered_budget<.*not_covered<smelt::coverage_gap::window>
// max-lines: 11
#include <smelt/budget/check.hpp>

using namespace smelt;

struct windowed : arch<spec{.vocab = 32'000,
                            .context = 2'048,
                            .width = 1'280,
                            .layers = 12,
                            .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64, .window = 128},
                            .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

#ifdef CONTROL
static_assert(budgets_match<windowed, windowed>::passed);
#else
static_assert(budgets_match<windowed, windowed, within{}, accounting{.flops = conventions::torchtitan}>::passed);
#endif
