// expect: constraint|Architecture
// expect: Architecture
#include <smelt/budget/check.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

#ifdef CONTROL
static_assert(budgets_match<base, base>::passed);
#else
static_assert(budgets_match<base, int>::passed);
#endif
