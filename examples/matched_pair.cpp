// A matched pair: the compiler solves for the looped partner of an architecture, and proves that the two cost the same.
#include <cstdio>
#include <smelt/budget/check.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/table.hpp>
#include <smelt/spec/arch.hpp>

using namespace smelt::literals;

// [pair]
struct base : smelt::arch<smelt::spec{.vocab = 32'000,
                                      .context = 2'048,
                                      .width = 1'280,
                                      .layers = 12,
                                      .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                                      .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};

constexpr smelt::within tolerance{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct};

// The same budgets, the middle half of the layers visited twice: width, experts and heads solved by the compiler.
struct looped : smelt::arch<smelt::match(base::value, smelt::middle_twice, tolerance)> {};

static_assert(smelt::budgets_match<looped, base, tolerance>::passed);
static_assert(looped::executed_depth == 18);  // 3 entry layers, 6 looped layers visited twice, 3 exit layers
// [/pair]

// [quantities]
// Each physical quantity is part of the type, and concepts name the kinds.
static_assert(smelt::Looped<looped> && !smelt::Looped<base>);
static_assert(looped::visits == 2 && looped::loop.first == 3 && looped::loop.count == 6);
static_assert(looped::width < base::width && looped::experts > base::experts);
// [/quantities]

int main() {
  std::printf("width %d -> %d, experts %d -> %d, heads %d x %d -> %d x %d\n", base::width, looped::width, base::experts,
              looped::experts, base::value.attention.heads, base::value.attention.head_dim,
              looped::value.attention.heads, looped::value.attention.head_dim);
  std::fputs(smelt::to_text(smelt::table_of(looped::value, base::value, tolerance)).c_str(), stdout);
}
