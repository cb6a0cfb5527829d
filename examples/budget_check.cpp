// A budget check for continuous integration: this file compiles as long as the architecture keeps its promises.
#include <cstdio>
#include <smelt/budget/check.hpp>
#include <smelt/budget/table.hpp>
#include <smelt/spec/arch.hpp>

using namespace smelt::literals;

// [architectures]
/// What runs today.
struct production : smelt::arch<smelt::spec{.vocab = 50'304,
                                            .context = 4'096,
                                            .width = 2'048,
                                            .layers = 16,
                                            .attention = {.heads = 16, .kv_heads = 4, .head_dim = 128},
                                            .experts = {.stored = 64, .active = 8, .hidden = 1'024}}> {};

/// What shall replace it: the middle half of the layers visited twice.
struct candidate : smelt::arch<smelt::spec{.vocab = 50'304,
                                           .context = 4'096,
                                           .width = 1'664,
                                           .layers = 16,
                                           .attention = {.heads = 20, .kv_heads = 4, .head_dim = 86},
                                           .experts = {.stored = 97, .active = 8, .hidden = 832},
                                           .loop = smelt::middle_twice}> {};
// [/architectures]

// [check]
// The same training FLOPs, parameters and KV cache, each within its tolerance: a broken one stops the compiler with
// both numbers, their ratio and the tolerance.
static_assert(smelt::budgets_match<candidate, production,
                                   smelt::within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}>::passed);

// And what the deployment can hold, whatever it replaces.
static_assert(smelt::within_budget<candidate, smelt::at_most{.params = 7'000'000'000,
                                                             .kv_cache = 70'000,
                                                             .active_params = 1'500'000'000}>::passed);
// [/check]

int main() {
  // [table]
  const smelt::budget_table table = smelt::table_of(candidate::value, production::value);
  std::fputs(smelt::to_text(table).c_str(), stdout);
  return table.ok ? 0 : 1;
  // [/table]
}
