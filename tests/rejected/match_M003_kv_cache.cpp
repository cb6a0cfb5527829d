// expect: \[smelt-M003\] match: a partner must keep the base.s KV-cache bytes within the tolerance
// expect: no_partner<.*kv_cache_unmet, .*kv_heads_held, .*nearest_candidate<.*kv_heads<4>, .*head_dim<64>
// expect: metric::kv_cache, .*actual<18432>, .*expected<12288>, .*ratio_in_ppm<1500000>, .*
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
constexpr match_options options{.vary = {.kv_heads = false}};
#else
constexpr match_options options{.vary = {.kv_heads = false, .head_dim = false}};
#endif
struct looped : partner_of<base, middle_twice, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}, options> {};
