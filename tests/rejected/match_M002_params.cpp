// expect: \[smelt-M002\] match: a partner must have the base.s parameters within the tolerance
// expect: no_partner<.*params_unmet, .*experts_limits, .*experts<200>
// expect: metric::params, .*actual<\d+>, .*expected<\d+>, .*ratio_in_ppm<\d{6}>, .*tolerance_in_ppm<10000>
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
constexpr match_options options{.width = {.most = 1024}, .experts = {.most = 400}};
#else
constexpr match_options options{.width = {.most = 1024}, .experts = {.most = 200}};
#endif
struct looped : partner_of<base, middle_twice, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}, options> {};
