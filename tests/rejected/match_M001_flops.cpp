// expect: \[smelt-M001\] match: a partner must cost the base.s FLOPs within the tolerance
// expect: no_partner<.*flops_unmet, .*width_held, .*nearest_candidate<
// expect: width<1280>, .*heads<\d+>, .*kv_heads<\d+>, .*head_dim<\d+>, .*experts<\d+>, .*hidden<\d+>
// expect: metric::flops, .*actual<\d+>, .*expected<\d+>, .*ratio_in_ppm<1\d{6}>, .*tolerance_in_ppm<40000>
// expect: compared_budget<.*metric::params, .*
// expect: compared_budget<.*metric::kv_cache, .*
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
constexpr match_options options{};
#else
constexpr match_options options{.vary = {.width = false}};
#endif
struct looped : partner_of<base, middle_twice, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}, options> {};
