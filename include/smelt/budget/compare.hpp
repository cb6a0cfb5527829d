// Do two architectures cost the same? Three figures a side, one row a budget.
#pragma once

#include <cstdint>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

/// A budget by name.
enum class metric : int {
  flops,          ///< training FLOPs a token, under the accounting's convention
  params,         ///< parameters, by the accounting's metric
  kv_cache,       ///< KV-cache bytes a token
  active_params,  ///< parameters that one token uses, with the input table
};

/// The name of `m`, as the JSON output writes it.
[[nodiscard]] constexpr const char* name_of(metric m) noexcept {
  switch (m) {
    case metric::flops:
      return "flops";
    case metric::params:
      return "params";
    case metric::kv_cache:
      return "kv_cache";
    case metric::active_params:
      return "active_params";
  }
  return "";
}

/// The three budgets of one architecture.
struct budget_figures {
  std::int64_t flops = 0;                 ///< training FLOPs a token
  std::int64_t params = 0;                ///< parameters, by the accounting's metric
  std::int64_t kv_cache = 0;              ///< KV-cache bytes a token
  coverage_gap gap = coverage_gap::none;  ///< set when the convention cannot count the FLOPs

  friend constexpr bool operator==(const budget_figures&, const budget_figures&) = default;
};

namespace detail {

template <class Count>
[[nodiscard]] constexpr budget_figures figures_in(const spec& s, const accounting& a) noexcept {
  const layer_parameters one = layer_parameters_in<Count>(s);
  const flop_count f = flops_in<Count>(s, one, a.flops, s.context);
  return {f.train_per_token, figure_of(parameters_in<Count>(s, one), a.params),
          kv_cache_in<Count>(s, a.kv_bytes_per_element, s.context).bytes_per_token, f.gap};
}

}  // namespace detail

/// The budgets of `s` under `a`. Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr budget_figures figures_of(const spec& s, const accounting& a = {}) noexcept {
  if (std::is_constant_evaluated()) return detail::figures_in<detail::unchecked_count>(s, a);
  return detail::figures_in<detail::checked_count>(s, a);
}

/// One budget of a comparison.
struct budget_row {
  metric what = metric::flops;
  std::int64_t actual = 0;
  std::int64_t expected = 0;
  percent tolerance{};
  bool ok = false;

  /// actual / expected in parts per million, to nearest.
  [[nodiscard]] constexpr std::int64_t ratio() const noexcept { return ratio_ppm(actual, expected); }
};

/// A comparison: every budget's row, and whether all hold.
struct budget_comparison {
  budget_row flops, params, kv_cache;
  coverage_gap gap = coverage_gap::none;  ///< set when the convention cannot count one side's FLOPs
  bool ok = false;
};

/// Compares figures that were counted under the same accounting. A figure that overflowed never agrees.
[[nodiscard]] constexpr budget_comparison compare(const budget_figures& actual, const budget_figures& expected,
                                                  const within& w) noexcept {
  const auto row = [](metric m, std::int64_t a, std::int64_t e, percent t) {
    return budget_row{m, a, e, t, fits(a) && fits(e) && agrees(a, e, t)};
  };
  budget_comparison c{row(metric::flops, actual.flops, expected.flops, w.flops),
                      row(metric::params, actual.params, expected.params, w.params),
                      row(metric::kv_cache, actual.kv_cache, expected.kv_cache, w.kv_cache)};
  c.gap = actual.gap == coverage_gap::none ? expected.gap : actual.gap;
  if (c.gap != coverage_gap::none) c.flops.ok = false;
  c.ok = c.flops.ok && c.params.ok && c.kv_cache.ok;
  return c;
}

/// Whether `compare` finds every budget kept; the short way for the compiler.
[[nodiscard]] constexpr bool agree(const budget_figures& actual, const budget_figures& expected,
                                   const within& w) noexcept {
  return actual.gap == coverage_gap::none && expected.gap == coverage_gap::none && fits(actual.flops) &&
         fits(actual.params) && fits(actual.kv_cache) && fits(expected.flops) && fits(expected.params) &&
         fits(expected.kv_cache) && agrees(actual.flops, expected.flops, w.flops) &&
         agrees(actual.params, expected.params, w.params) && agrees(actual.kv_cache, expected.kv_cache, w.kv_cache);
}

/// Compares two specs under one accounting. Precondition: both satisfy the rules of spec/rules.hpp.
[[nodiscard]] constexpr budget_comparison compare(const spec& actual, const spec& expected, const within& w = {},
                                                  const accounting& a = {}) noexcept {
  return compare(figures_of(actual, a), figures_of(expected, a), w);
}

}  // namespace smelt
