// Which looped architecture costs what this one costs? The compiler solves for it; so does a program, by the same code.
#pragma once

#include <cstdint>
#include <smelt/budget/check.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/match_request.hpp>
#include <smelt/budget/partner_search.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

// The words of a match that fails, for the compiler and at run time alike.
#define SMELT_M001                                                                                                    \
  "[smelt-M001] match: a partner must cost the base's FLOPs within the tolerance; free or widen what the constraint " \
  "names, or widen .flops"
#define SMELT_M002                                                                                              \
  "[smelt-M002] match: a partner must have the base's parameters within the tolerance; free or widen what the " \
  "constraint names, or widen .params"
#define SMELT_M003                                                                                                  \
  "[smelt-M003] match: a partner must keep the base's KV-cache bytes within the tolerance; free or widen what the " \
  "constraint names, or widen .kv_cache"
#define SMELT_M004                                                                                                  \
  "[smelt-M004] match: one partner must meet every budget, and each can only be met alone; free or widen what the " \
  "constraint names, or widen a tolerance"
#define SMELT_M005                                                                                                    \
  "[smelt-M005] match: tolerances and limits must not be negative, multiples at least 1 with one of them inside the " \
  "limits, and the FLOPs convention must cover the base and its loop; change the options"

/// What the matcher found. `partner` is the match, or the nearest candidate when there is none.
struct match_result {
  match_outcome outcome = match_outcome::options_invalid;
  match_constraint constraint = match_constraint::none;
  spec partner{};
  budget_comparison budgets{};  ///< the partner's figures (actual) against the base's (expected)
  match_options options{};      ///< as used: multiples that were 0 are resolved
  std::int64_t shape = 0;       ///< distance from the base's shape in percent; 0 is "about the same"

  /// Whether every budget is inside its tolerance.
  [[nodiscard]] constexpr bool found() const noexcept { return outcome == match_outcome::found; }
};

/// The partner of `base`: the same architecture with `loop` and other sizes, whose training FLOPs a token, parameters
/// and KV-cache bytes a token agree with the base's within `tolerance`. Never throws: `outcome` says how it ended, and
/// `partner` is the nearest candidate when there is no match. The same result at compile time and at run time.
///
/// Among the candidates inside the tolerances the base's shape comes first (hidden / width, heads x head_dim / width
/// and the number of KV heads; 5 % off is still the same shape), then the smallest error.
[[nodiscard]] constexpr match_result find_match(const spec& base, const loop_spec& loop, const within& tolerance = {},
                                                const match_options& options = {}) noexcept {
  match_result r;
  r.options = options;
  r.partner = base;
  r.partner.loop = loop;
  if (is_valid(base) && is_valid(r.partner)) r.options = detail::resolved(options, base, r.partner);
  r.outcome = detail::request_problem(base, r.partner, tolerance, r.options);
  if (!r.found()) return r;

  detail::partner_search search(base, r.partner, tolerance, r.options);
  search.run();
  r.partner = search.partner();
  r.shape = search.shape();
  r.budgets = compare(r.partner, base, tolerance, options.by);
  if (r.budgets.ok) return r;
  const detail::match_failure why = search.failure();
  r.outcome = why.outcome;
  r.constraint = why.constraint;
  return r;
}

namespace detail {

// Never constexpr: constant evaluation stops at one of these, and its name is what the compiler prints.
inline void because_vary_width_is_off() {}
inline void because_of_the_limits_of_width() {}
inline void because_width_is_a_multiple_of_width_multiple() {}
inline void because_vary_experts_is_off() {}
inline void because_of_the_limits_of_experts() {}
inline void because_experts_are_a_multiple_of_experts_multiple() {}
inline void because_no_layer_has_routed_experts() {}
inline void because_vary_kv_heads_and_vary_head_dim_are_off() {}
inline void because_vary_head_dim_is_off() {}
inline void because_of_the_limits_of_head_dim() {}
inline void because_head_dim_is_a_multiple_of_head_dim_multiple() {}
inline void because_the_request_is_invalid() {}

constexpr void stop(match_constraint constraint) {
  switch (constraint) {
    case match_constraint::width_held:
      return because_vary_width_is_off();
    case match_constraint::width_limits:
      return because_of_the_limits_of_width();
    case match_constraint::width_multiple:
      return because_width_is_a_multiple_of_width_multiple();
    case match_constraint::experts_held:
      return because_vary_experts_is_off();
    case match_constraint::experts_limits:
      return because_of_the_limits_of_experts();
    case match_constraint::experts_multiple:
      return because_experts_are_a_multiple_of_experts_multiple();
    case match_constraint::no_experts:
      return because_no_layer_has_routed_experts();
    case match_constraint::kv_heads_held:
      return because_vary_kv_heads_and_vary_head_dim_are_off();
    case match_constraint::head_dim_held:
      return because_vary_head_dim_is_off();
    case match_constraint::head_dim_limits:
      return because_of_the_limits_of_head_dim();
    case match_constraint::head_dim_multiple:
      return because_head_dim_is_a_multiple_of_head_dim_multiple();
    case match_constraint::none:
      return because_the_request_is_invalid();
  }
}
constexpr void smelt_M001_flops_cannot_be_met(match_constraint constraint) {
  stop(constraint);
}
constexpr void smelt_M002_params_cannot_be_met(match_constraint constraint) {
  stop(constraint);
}
constexpr void smelt_M003_kv_cache_cannot_be_met(match_constraint constraint) {
  stop(constraint);
}
constexpr void smelt_M004_budgets_cannot_be_met_together(match_constraint constraint) {
  stop(constraint);
}
constexpr void smelt_M005_request_is_invalid(match_outcome) {
  stop(match_constraint::none);
}

/// Stops the compiler by the name of what failed; its arguments are what clang prints. actual against expected.
constexpr void no_partner_see_partner_of_for_its_numbers(match_outcome outcome, match_constraint constraint,
                                                         std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                                         std::int64_t, std::int64_t) {
  switch (outcome) {
    case match_outcome::flops_unmet:
      return smelt_M001_flops_cannot_be_met(constraint);
    case match_outcome::params_unmet:
      return smelt_M002_params_cannot_be_met(constraint);
    case match_outcome::kv_cache_unmet:
      return smelt_M003_kv_cache_cannot_be_met(constraint);
    case match_outcome::not_together:
      return smelt_M004_budgets_cannot_be_met_together(constraint);
    default:
      return smelt_M005_request_is_invalid(outcome);
  }
}

}  // namespace detail

/// The partner of `base` as a spec, at compile time: `struct looped : arch<match(base::value, middle_twice, {...})>
/// {};`. When there is none it does not compile, and the compiler names the budget and the constraint; `partner_of`
/// prints the nearest candidate's numbers on every compiler, and budget/match_report.hpp has the same at run time.
[[nodiscard]] consteval spec match(const spec& base, const loop_spec& loop, const within& tolerance = {},
                                   const match_options& options = {}) {
  const match_result r = find_match(base, loop, tolerance, options);
  const budget_comparison& b = r.budgets;
  if (!r.found())
    detail::no_partner_see_partner_of_for_its_numbers(r.outcome, r.constraint, b.flops.actual, b.flops.expected,
                                                      b.params.actual, b.params.expected, b.kv_cache.actual,
                                                      b.kv_cache.expected);
  return r.partner;
}

/// The match of architecture `Base`, computed once.
template <Architecture Base, loop_spec Loop = middle_twice, within Within = within{},
          match_options Options = match_options{}>
inline constexpr match_result match_of = find_match(Base::value, Loop, Within, Options);

// The nearest candidate as types, so that every compiler prints it.
namespace sized {
template <int>
struct width;
template <int>
struct heads;
template <int>
struct kv_heads;
template <int>
struct head_dim;
template <int>
struct experts;
template <int>
struct hidden;
}  // namespace sized
/// Its sizes.
template <class Width, class Heads, class KvHeads, class HeadDim, class Experts, class Hidden>
struct nearest_candidate;
/// One of its budgets.
template <metric Metric, class Actual, class Expected, class Ratio, class Tolerance>
struct compared_budget;

/// Fails to compile, with the words of its code, when instantiated for a match that failed; its arguments are what the
/// reader needs.
template <match_outcome Outcome, match_constraint Because, class Nearest, class Flops, class Params, class KvCache>
struct no_partner {
  static_assert(Outcome != match_outcome::flops_unmet, SMELT_M001);
  static_assert(Outcome != match_outcome::params_unmet, SMELT_M002);
  static_assert(Outcome != match_outcome::kv_cache_unmet, SMELT_M003);
  static_assert(Outcome != match_outcome::not_together, SMELT_M004);
  static_assert(Outcome != match_outcome::options_invalid && Outcome != match_outcome::convention_invalid &&
                    Outcome != match_outcome::too_large,
                SMELT_M005);
};

namespace detail {

template <metric Metric, std::int64_t Actual, std::int64_t Expected, std::int64_t Tolerance>
using compared = compared_budget<Metric, actual<Actual>, expected<Expected>, ratio_in_ppm<ratio_ppm(Actual, Expected)>,
                                 tolerance_in_ppm<Tolerance>>;

/// Nothing when a partner was found.
template <bool Found, const match_result& R>
struct partner_check {};
template <const match_result& R>
struct partner_check<false, R>
    : no_partner<
          R.outcome, R.constraint,
          nearest_candidate<sized::width<R.partner.width>, sized::heads<R.partner.attention.heads>,
                            sized::kv_heads<R.partner.attention.kv_heads>,
                            sized::head_dim<R.partner.attention.head_dim>, sized::experts<R.partner.experts.stored>,
                            sized::hidden<R.partner.experts.hidden>>,
          compared<metric::flops, R.budgets.flops.actual, R.budgets.flops.expected, R.budgets.flops.tolerance.ppm>,
          compared<metric::params, R.budgets.params.actual, R.budgets.params.expected, R.budgets.params.tolerance.ppm>,
          compared<metric::kv_cache, R.budgets.kv_cache.actual, R.budgets.kv_cache.expected,
                   R.budgets.kv_cache.tolerance.ppm>> {};

}  // namespace detail

/// The partner of architecture `Base` as an architecture: `struct looped : partner_of<base, middle_twice, within{...}>
/// {};`. When there is none it does not compile: the message has the budget that fails, the constraint, and the nearest
/// candidate with its sizes and figures.
template <Architecture Base, loop_spec Loop = middle_twice, within Within = within{},
          match_options Options = match_options{}>
struct partner_of : private detail::partner_check<match_of<Base, Loop, Within, Options>.found(),
                                                  match_of<Base, Loop, Within, Options>>,
                    arch<match_of<Base, Loop, Within, Options>.partner> {};

}  // namespace smelt
