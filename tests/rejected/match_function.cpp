// expect: because_no_layer_has_routed_experts
// expect: smelt_M004_budgets_cannot_be_met_together
// max-lines: 26
#include <smelt/budget/match.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'024,
                        .layers = 12,
#ifndef CONTROL
                        .dense_layers = 12,
                        .dense_hidden = 4'096,
#endif
                        .attention = {.heads = 16, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 64, .active = 8, .hidden = 512}}> {
};
struct looped : arch<match(base::value, middle_twice, {.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct})> {};
