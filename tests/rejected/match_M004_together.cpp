// expect: \[smelt-M004\] match: one partner must meet every budget
// expect: no_partner<.*not_together, .*experts_held, .*experts<192>
// max-lines: 17
#include <smelt/budget/match.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

#ifdef CONTROL
constexpr match_options options{.experts = {.least = 200}};
#else
constexpr match_options options{.vary = {.experts = false}};
#endif
struct looped : partner_of<base, middle_twice, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}, options> {};
