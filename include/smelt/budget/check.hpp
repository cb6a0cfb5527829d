// Does an architecture keep its budgets? Concepts ask quietly; class templates fail to compile with the numbers.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/compare.hpp>
#include <smelt/spec/arch.hpp>
#include <type_traits>

namespace smelt {

#define SMELT_B001                                                                                                     \
  "[smelt-B001] budget: the two figures must agree within the tolerance; change the first architecture (smelt::match " \
  "solves for it) or widen the tolerance"
#define SMELT_B002 \
  "[smelt-B002] budget: the FLOPs convention must cover the architecture; use conventions::smelt, which does"
#define SMELT_B003 "[smelt-B003] budget: the figure must not pass the limit; shrink the architecture or raise the limit"

/// The budgets of architecture `A`, computed once.
template <class A, accounting Accounting>
inline constexpr budget_figures figures_of_architecture = figures_of(A::value, Accounting);

/// What an architecture is stated to cost; 0 leaves a budget out.
struct stated {
  std::int64_t flops = 0;     ///< training FLOPs a token
  std::int64_t params = 0;    ///< parameters
  std::int64_t kv_cache = 0;  ///< KV-cache bytes a token

  friend constexpr bool operator==(const stated&, const stated&) = default;
};

/// Limits of an architecture's budgets; 0 leaves a budget out.
struct at_most {
  std::int64_t flops = 0;          ///< training FLOPs a token
  std::int64_t params = 0;         ///< parameters
  std::int64_t kv_cache = 0;       ///< KV-cache bytes a token
  std::int64_t active_params = 0;  ///< parameters that one token uses, with the input table

  friend constexpr bool operator==(const at_most&, const at_most&) = default;
};

/// Accounting of stated totals: every unique parameter is counted.
inline constexpr accounting total_accounting{.params = parameter_metric::total};

/// Two architectures whose budgets agree within `Within`, counted alike. Asks quietly.
template <class A, class B, within Within = within{}, accounting Accounting = accounting{}>
concept BudgetsMatch = Architecture<A> && Architecture<B> &&
                       agree(figures_of_architecture<A, Accounting>, figures_of_architecture<B, Accounting>, Within);

namespace detail {

/// `f` with the budgets that `s` leaves out taken from it, so that they agree with themselves.
[[nodiscard]] constexpr budget_figures fill(const stated& s, const budget_figures& f) noexcept {
  return {s.flops == 0 ? f.flops : s.flops, s.params == 0 ? f.params : s.params,
          s.kv_cache == 0 ? f.kv_cache : s.kv_cache, coverage_gap::none};
}
[[nodiscard]] constexpr bool below(std::int64_t figure, std::int64_t limit) noexcept {
  return limit == 0 || (fits(figure) && figure <= limit);
}
[[nodiscard]] constexpr std::int64_t active_parameters(const spec& s, const at_most& limits) noexcept {
  return limits.active_params == 0 ? 0 : parameters(s).active;
}
[[nodiscard]] constexpr bool keeps(const spec& s, const budget_figures& f, const at_most& limits) noexcept {
  return (limits.flops == 0 || f.gap == coverage_gap::none) && below(f.flops, limits.flops) &&
         below(f.params, limits.params) && below(f.kv_cache, limits.kv_cache) &&
         below(active_parameters(s, limits), limits.active_params);
}

}  // namespace detail

/// The tolerance of nothing.
inline constexpr within exactly{.flops = percent{0}, .params = percent{0}, .kv_cache = percent{0}};

/// An architecture that costs what is stated, exactly or within `Within`. Asks quietly.
template <class A, stated Stated, within Within = exactly, accounting Accounting = total_accounting>
concept CostsAsStated = Architecture<A> && agree(figures_of_architecture<A, Accounting>,
                                                 detail::fill(Stated, figures_of_architecture<A, Accounting>), Within);

/// An architecture below every limit. Asks quietly.
template <class A, at_most Limits, accounting Accounting = total_accounting>
concept WithinBudget = Architecture<A> && detail::keeps(A::value, figures_of_architecture<A, Accounting>, Limits);

/// The figure of the checked architecture, as a type, so that every compiler prints it; so are the others.
template <std::int64_t Figure>
struct actual {
  static constexpr bool allowed = false;
};
/// What the convention cannot count.
template <coverage_gap Gap>
struct not_covered {
  static constexpr bool allowed = false;
};
/// The figure it is held against.
template <std::int64_t Figure>
struct expected {};
/// actual / expected.
template <std::int64_t PartsPerMillion>
struct ratio_in_ppm {};
/// How far the ratio may be from 1'000'000.
template <std::int64_t PartsPerMillion>
struct tolerance_in_ppm {};
/// The limit of a figure.
template <std::int64_t Figure>
struct most {};

/// The row of a budget that is not kept: instantiating it fails, and its arguments are what the reader needs.
template <metric Metric, class Actual, class Expected, class Ratio, class Tolerance>
struct broken_budget {
  static_assert(Actual::allowed, SMELT_B001);
};
/// The row of FLOPs that cannot be counted.
template <metric Metric, class NotCovered>
struct uncovered_budget {
  static_assert(NotCovered::allowed, SMELT_B002);
};
/// The row of a limit that is passed.
template <metric Metric, class Actual, class Most, class Ratio>
struct exceeded_budget {
  static_assert(Actual::allowed, SMELT_B003);
};
/// The row of a budget that is kept.
template <metric Metric>
struct kept_budget {};

namespace detail {

enum class row_state { kept, broken, uncovered };

[[nodiscard]] constexpr const budget_row& row_of(const budget_comparison& c, metric m) noexcept {
  return m == metric::flops ? c.flops : m == metric::params ? c.params : c.kv_cache;
}
[[nodiscard]] constexpr row_state state_of(const budget_comparison& c, metric m) noexcept {
  if (c.ok || row_of(c, m).ok) return row_state::kept;
  return m == metric::flops && c.gap != coverage_gap::none ? row_state::uncovered : row_state::broken;
}

// The class of a row, chosen by aliases: a kept promise instantiates nothing, and a broken one adds no frame of ours to
// what the compiler prints.
template <row_state State>
struct choose_row {
  template <metric Metric, const budget_comparison&>
  using type = kept_budget<Metric>;
};
template <>
struct choose_row<row_state::broken> {
  template <metric Metric, const budget_comparison& C>
  using type =
      broken_budget<Metric, actual<row_of(C, Metric).actual>, expected<row_of(C, Metric).expected>,
                    ratio_in_ppm<row_of(C, Metric).ratio()>, tolerance_in_ppm<row_of(C, Metric).tolerance.ppm>>;
};
template <>
struct choose_row<row_state::uncovered> {
  template <metric Metric, const budget_comparison& C>
  using type = uncovered_budget<Metric, not_covered<C.gap>>;
};
template <metric Metric, const budget_comparison& C>
using comparison_row = typename choose_row<state_of(C, Metric)>::template type<Metric, C>;

struct covered_flops {};
template <coverage_gap Gap>
struct choose_coverage_row {
  using type = uncovered_budget<metric::flops, not_covered<Gap>>;
};
template <>
struct choose_coverage_row<coverage_gap::none> {
  using type = covered_flops;
};

template <bool Kept>
struct choose_limit_row {
  template <metric Metric, std::int64_t, std::int64_t>
  using type = kept_budget<Metric>;
};
template <>
struct choose_limit_row<false> {
  template <metric Metric, std::int64_t Actual, std::int64_t Most>
  using type = exceeded_budget<Metric, actual<Actual>, most<Most>, ratio_in_ppm<ratio_ppm(Actual, Most)>>;
};
template <metric Metric, std::int64_t Actual, std::int64_t Most>
using limit_row = typename choose_limit_row<below(Actual, Most)>::template type<Metric, Actual, Most>;

template <class A, class B, within Within, accounting Accounting>
inline constexpr budget_comparison comparison_of =
    compare(figures_of_architecture<A, Accounting>, figures_of_architecture<B, Accounting>, Within);
template <class A, stated Stated, within Within, accounting Accounting>
inline constexpr budget_comparison comparison_with_stated =
    compare(figures_of_architecture<A, Accounting>, fill(Stated, figures_of_architecture<A, Accounting>), Within);

}  // namespace detail

/// Two architectures whose budgets agree within `Within`, counted alike; otherwise it does not compile, with one row a
/// broken budget: metric, both figures, ratio and tolerance. `static_assert(budgets_match<a, b>::passed);`
template <Architecture A, Architecture B, within Within = within{}, accounting Accounting = accounting{},
          bool Agree = BudgetsMatch<A, B, Within, Accounting>>
struct budgets_match {
  static constexpr bool passed = true;  ///< reaching it is passing: a row that is broken has stopped the compiler
};
template <Architecture A, Architecture B, within Within, accounting Accounting>
struct budgets_match<A, B, Within, Accounting, false>
    : private detail::comparison_row<metric::flops, detail::comparison_of<A, B, Within, Accounting>>,
      private detail::comparison_row<metric::params, detail::comparison_of<A, B, Within, Accounting>>,
      private detail::comparison_row<metric::kv_cache, detail::comparison_of<A, B, Within, Accounting>> {
  static constexpr bool passed = true;  ///< the rows fail; a second failure here would only repeat them
};

/// An architecture that costs what is stated, exactly or within `Within`; otherwise it does not compile, with the same
/// rows. `static_assert(costs_as_stated<llama, stated{.params = 405'853'388'800}>::passed);`
template <Architecture A, stated Stated, within Within = exactly, accounting Accounting = total_accounting>
struct costs_as_stated
    : private detail::comparison_row<metric::flops, detail::comparison_with_stated<A, Stated, Within, Accounting>>,
      private detail::comparison_row<metric::params, detail::comparison_with_stated<A, Stated, Within, Accounting>>,
      private detail::comparison_row<metric::kv_cache, detail::comparison_with_stated<A, Stated, Within, Accounting>> {
  static constexpr bool passed = true;  ///< as in budgets_match
};

/// An architecture below every limit; otherwise it does not compile, with one row a passed limit.
/// `static_assert(within_budget<tiny, at_most{.params = 10'000'000}>::passed);`
template <Architecture A, at_most Limits, accounting Accounting = total_accounting>
struct within_budget
    : private detail::limit_row<metric::flops, figures_of_architecture<A, Accounting>.flops, Limits.flops>,
      private detail::limit_row<metric::params, figures_of_architecture<A, Accounting>.params, Limits.params>,
      private detail::limit_row<metric::kv_cache, figures_of_architecture<A, Accounting>.kv_cache, Limits.kv_cache>,
      private detail::limit_row<metric::active_params, detail::active_parameters(A::value, Limits),
                                Limits.active_params>,
      private detail::choose_coverage_row<Limits.flops == 0 ? coverage_gap::none
                                                            : figures_of_architecture<A, Accounting>.gap>::type {
  static constexpr bool passed = true;  ///< as in budgets_match
};

}  // namespace smelt
