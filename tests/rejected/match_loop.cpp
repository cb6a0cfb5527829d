// expect: \[smelt-S024\] spec: loop.first \+ loop.count must not pass layers
// max-lines: 16
#include <smelt/budget/match.hpp>

using namespace smelt;

struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'024,
                        .layers = 12,
                        .attention = {.heads = 16, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 64, .active = 8, .hidden = 512}}> {};
#ifdef CONTROL
constexpr loop_spec loop{.first = 6, .count = 6, .visits = visits(2)};
#else
constexpr loop_spec loop{.first = 8, .count = 6, .visits = visits(2)};
#endif
struct looped : partner_of<base, loop> {};
