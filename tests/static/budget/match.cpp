// Does the compiler find the partners that the papers found, by the papers' moves?
#include <smelt/budget/check.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/spec/published.hpp>

#include "support/public_models.hpp"

namespace {

using namespace smelt;
using namespace smelt::published;

// ---- the usage that the documentation shows -------------------------------------------------------------------------
struct base : arch<spec{.vocab = 32'000,
                        .context = 2'048,
                        .width = 1'280,
                        .layers = 12,
                        .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},
                        .experts = {.stored = 192, .active = 8, .hidden = 432}}> {};
struct looped : arch<match(base::value, middle_twice, {.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct})> {};
static_assert(budgets_match<looped, base, within{.flops = 4_pct, .params = 1_pct, .kv_cache = 4_pct}>::passed);
static_assert(looped::depth == base::depth && looped::executed_depth == 18 && looped::visits == 2);
static_assert(looped::active_experts == base::active_experts);

// `partner_of` gives the same architecture, and is one.
struct looped_by_type : partner_of<base> {};
static_assert(Looped<looped_by_type> && looped_by_type::value == looped::value);

// ---- the published baselines ----------------------------------------------------------------------------------------
[[nodiscard]] constexpr std::int64_t off(const budget_row& row) {
  const std::int64_t r = row.ratio() - 1'000'000;
  return r < 0 ? -r : r;
}
[[nodiscard]] constexpr std::int64_t worst(const budget_comparison& c) {
  const std::int64_t params = 4 * off(c.params);  // a parameter's tolerance is a quarter of the others'
  const std::int64_t rest = off(c.flops) > off(c.kv_cache) ? off(c.flops) : off(c.kv_cache);
  return params > rest ? params : rest;
}
/// At least as well matched as the published partner, with about 1.5 times the experts and the base's shape.
[[nodiscard]] constexpr bool as_good_as(const match_result& r, const spec& from, const spec& published_partner,
                                        const accounting& by) {
  const spec& p = r.partner;
  const budget_comparison theirs = compare(published_partner, from, within{}, by);
  const int heads_width = p.attention.heads * p.attention.head_dim;
  return r.found() && worst(r.budgets) <= worst(theirs) && p.experts.stored * 100 >= from.experts.stored * 140 &&
         p.experts.stored * 100 <= from.experts.stored * 160 && p.attention.kv_heads == from.attention.kv_heads &&
         p.attention.head_dim % 2 == 0 && heads_width * 100 >= p.width * 95 && heads_width * 100 <= p.width * 105 &&
         p.width * 100 >= from.width * 75 && p.width * 100 <= from.width * 90 && r.shape == 0;
}
template <int Multiple, class From, class Theirs>
inline constexpr bool solved =
    as_good_as(find_match(From::value, middle_twice, within{}, {.width_multiple = Multiple, .by = paper_accounting}),
               From::value, Theirs::value, paper_accounting);
static_assert(solved<8, smelt_200m_baseline, smelt_200m>);
static_assert(solved<64, smelt_200m_baseline, smelt_200m>);
static_assert(solved<8, smelt_600m_baseline, smelt_600m>);
static_assert(solved<64, smelt_600m_baseline, smelt_600m>);
// In smelt's own accounting, too: exact causal pairs, the head counted.
static_assert(match_of<smelt_200m_baseline>.found() && match_of<smelt_600m_baseline>.found());
static_assert(match_of<smelt_200m_baseline>.options.width_multiple == 64);
static_assert(match_of<smelt_200m_baseline>.partner.width % 64 == 0);

// ---- LatentLoop's tolerance: 1 % on all three -----------------------------------------------------------------------
inline constexpr within one_percent{.flops = 1_pct, .params = 1_pct, .kv_cache = 1_pct};
inline constexpr match_options by_8{.width_multiple = 8};
static_assert(match_of<smelt_200m_baseline, middle_twice, one_percent>.found());
static_assert(match_of<smelt_600m_baseline, middle_twice, one_percent>.found());
static_assert(match_of<smelt_200m_baseline, middle_twice, one_percent, by_8>.found());
// Under KV heads that may not move no even head size is within 1 %, and the matcher says so.
inline constexpr match_options held_kv_heads{.vary = {.kv_heads = false}};
static_assert(match_of<smelt_200m_baseline, middle_twice, one_percent, held_kv_heads>.outcome ==
              match_outcome::kv_cache_unmet);
static_assert(match_of<smelt_200m_baseline, middle_twice, one_percent, held_kv_heads>.constraint ==
              match_constraint::head_dim_multiple);
// A compressed first visit costs little, so that its partner is wider than a plain loop's.
inline constexpr loop_spec latent_twice{.count = loop_spec::half,
                                        .visits = visit_list{}.then({.compression = 2}).then({})};
static_assert(match_of<smelt_200m_baseline, latent_twice, one_percent>.found());
static_assert(match_of<smelt_200m_baseline, latent_twice, one_percent>.partner.width >
              match_of<smelt_200m_baseline, middle_twice, one_percent>.partner.width);

// LatentLoop itself, its other cuts of the first visit, and deeper loops with learned coefficients: all within 1 %.
template <visit_list Visits>
inline constexpr match_result to_one_percent =
    match_of<smelt_600m_baseline, loop_spec{.count = loop_spec::half, .visits = Visits}, one_percent, by_8>;
constexpr visit_list then_full(const visit_plan& first) {
  return visit_list{}.then(first).then({});
}
constexpr match_result latentloop = to_one_percent<then_full({.compression = 2, .own_attention = true})>;
constexpr match_result latentloop_tied = to_one_percent<then_full({.compression = 2})>;
static_assert(latentloop.found() && latentloop_tied.found());
// What attention of the first visit's own stores comes off the experts.
constexpr std::int64_t stored(const match_result& r) {
  return parameters(r.partner).experts;
}
static_assert(parameters(latentloop.partner).own_attention > 0 && stored(latentloop) < stored(latentloop_tied));
static_assert(to_one_percent<then_full({.stream = {1, 2}})>.found());
static_assert(to_one_percent<then_full({.stream = {1, 2}})>.partner.width % 2 == 0);
static_assert(to_one_percent<then_full({.expert_hidden = {1, 3}})>.found());
static_assert(to_one_percent<then_full({.expert_hidden = {1, 3}})>.partner.experts.hidden % 3 == 0);
static_assert(to_one_percent<then_full({.active = 4})>.found());
static_assert(to_one_percent<visits(3, {.learned = true})>.found());
static_assert(to_one_percent<visits(4, {.learned = true})>.found());

// ---- other loops, other bases ---------------------------------------------------------------------------------------
inline constexpr loop_spec middle_thrice{.count = loop_spec::half, .visits = visits(3)};
static_assert(match_of<smelt_200m_baseline, middle_thrice>.found());
static_assert(match_of<smelt_200m_baseline, middle_thrice>.partner.width < match_of<smelt_200m_baseline>.partner.width);
// No loop: the base is its own partner.
static_assert(match_of<smelt_200m_baseline, loop_spec{}>.partner == smelt_200m_baseline::value);
struct mixtral : arch<public_models::mixtral_8x7b> {};
struct olmoe : arch<public_models::olmoe_1b_7b> {};
struct qwen3 : arch<public_models::qwen3_30b_a3b> {};
struct gpt_oss : arch<public_models::gpt_oss_20b> {};
struct deepseek_v2 : arch<public_models::deepseek_v2> {};
static_assert(match_of<mixtral>.found());
static_assert(match_of<olmoe>.found() && match_of<qwen3>.found());
static_assert(match_of<gpt_oss>.found());      // biases, sinks, windows
static_assert(match_of<deepseek_v2>.found());  // latent attention: the rank restores the KV cache
static_assert(match_of<deepseek_v2>.partner.attention.latent.kv_rank < 512);
// 126 layers stay inside the compiler's default limits.
struct llama : arch<public_models::llama31_405b> {};
static_assert(match_of<llama>.constraint == match_constraint::no_experts && !match_of<llama>.found());

// So do sixteen visits by eight plans that take shares of everything, of a base with windows, sinks and biases.
constexpr visit_list eight_plans = [] {
  visit_list list;
  for (int i = 1; i <= 8; ++i)
    list = list.then({.residual = {1, 16},
                      .learned = true,
                      .compression = i % 4 + 1,
                      .encoder = encoder_kind::conv,
                      .own_attention = i % 2 == 1,
                      .active = i % 3 + 1,
                      .expert_hidden = {i % 2 + 1, 2},
                      .stream = {i % 4 + 1, 4}},
                     2);
  return list;
}();
inline constexpr match_result deep = match_of<gpt_oss, loop_spec{.count = loop_spec::half, .visits = eight_plans}>;
static_assert(deep.outcome != match_outcome::loop_invalid && deep.outcome != match_outcome::too_large);
static_assert(is_valid(deep.partner) && deep.partner.loop.visits.count == 16);

}  // namespace
