// Do the checks hold where they must, and say no quietly where they must not?
#include <smelt/budget/check.hpp>
#include <smelt/spec/published.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
using namespace smelt::published;
namespace models = smelt::public_models;

// The published pairs, in the papers' accounting: FLOPs and KV within 4 %, parameters within 1 %.
static_assert(budgets_match<smelt_200m, smelt_200m_baseline, within{}, paper_accounting>::passed);
static_assert(budgets_match<smelt_600m, smelt_600m_baseline, within{}, paper_accounting>::passed);
// And in our own, which counts exact causal pairs and the head.
static_assert(
    budgets_match<smelt_200m, smelt_200m_baseline, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}>::passed);

// Asked quietly.
static_assert(BudgetsMatch<smelt_200m, smelt_200m_baseline>);
static_assert(!BudgetsMatch<smelt_200m, smelt_200m_baseline, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 3_pct},
                            paper_accounting>);
static_assert(!BudgetsMatch<smelt_200m, smelt_600m>);
static_assert(!BudgetsMatch<smelt_200m, int>);

struct llama_405b : arch<models::llama31_405b> {};
constexpr spec wide_405b = [] {
  spec s = models::llama31_405b;
  s.attention.kv_heads = 16;
  return s;
}();
struct llama_405b_16_groups : arch<wide_405b> {};
static_assert(costs_as_stated<llama_405b, stated{.params = 405'853'388'800, .kv_cache = 516'096}>::passed);
static_assert(!CostsAsStated<llama_405b_16_groups, stated{.params = 405'853'388'800}>);
static_assert(CostsAsStated<llama_405b_16_groups, stated{.params = 405'853'388'800},
                            within{.flops = 0_pct, .params = 2_pct, .kv_cache = 0_pct}>);

// The hidden width is that of one of gate and up: given as their sum, or as all three, the total tells.
template <int Hidden>
constexpr spec llama_70b_of_hidden = [] {
  spec s = models::llama31_70b;
  s.dense_hidden = Hidden;
  return s;
}();
static_assert(CostsAsStated<arch<llama_70b_of_hidden<28'672>>, stated{.params = 70'553'706'496}>);
static_assert(!CostsAsStated<arch<llama_70b_of_hidden<2 * 28'672>>, stated{.params = 70'553'706'496}>);
static_assert(!CostsAsStated<arch<llama_70b_of_hidden<86'016>>, stated{.params = 70'553'706'496}>);

static_assert(within_budget<llama_405b, at_most{.params = 405'853'388'800}>::passed);
static_assert(!WithinBudget<llama_405b, at_most{.params = 405'853'388'799}>);
static_assert(!WithinBudget<llama_405b, at_most{.kv_cache = 500'000}>);
struct gpt_oss : arch<models::gpt_oss_20b> {};
static_assert(within_budget<gpt_oss, at_most{.active_params = 4'187'440'704}>::passed);
static_assert(!WithinBudget<gpt_oss, at_most{.active_params = 4'187'440'703}>);

// FLOPs under a convention that does not know windows agree with nothing, not even with themselves.
static_assert(!BudgetsMatch<gpt_oss, gpt_oss, within{}, accounting{.flops = conventions::torchtitan}>);
static_assert(!WithinBudget<gpt_oss, at_most{.flops = 1}, accounting{.flops = conventions::torchtitan}>);
static_assert(WithinBudget<gpt_oss, at_most{}, accounting{.flops = conventions::torchtitan}>);

}  // namespace
