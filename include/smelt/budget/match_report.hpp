// How is the end of a match told? In words with every number; and as an exception for programs that need a partner.
#pragma once

#include <cstdint>
#include <cstdio>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/core/error.hpp>
#include <smelt/spec/validate.hpp>
#include <string>

namespace smelt {

/// The words of a constraint, with the values that `r` used.
[[nodiscard]] inline std::string describe(match_constraint constraint, const match_result& r) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const auto limits = [&](const char* name, const size_limits& l) {
    return std::string(name) + " is limited to " + number(l.least) + " .. " + (l.most == 0 ? "any" : number(l.most));
  };
  const match_options& o = r.options;
  switch (constraint) {
    case match_constraint::none:
      return {};
    case match_constraint::width_held:
      return "the width may not vary";
    case match_constraint::width_limits:
      return limits("the width", o.width);
    case match_constraint::width_multiple:
      return "the width is a multiple of " + number(o.width_multiple) + " and the experts' hidden width of " +
             number(o.hidden_multiple);
    case match_constraint::experts_held:
      return "the number of stored experts may not vary";
    case match_constraint::experts_limits:
      return limits("the number of stored experts", o.experts) + " and is at least the most that a token visits, " +
             number(detail::most_active(r.partner));
    case match_constraint::experts_multiple:
      return o.experts_multiple == 1 ? "stored experts come whole"
                                     : "the number of stored experts is a multiple of " + number(o.experts_multiple);
    case match_constraint::no_experts:
      return "no layer has routed experts to add";
    case match_constraint::kv_heads_held:
      return "neither the number of KV heads nor the head size may vary";
    case match_constraint::head_dim_held:
      return "the head size may not vary";
    case match_constraint::head_dim_limits:
      return limits("the head size", o.head_dim);
    case match_constraint::head_dim_multiple:
      return "the head size is a multiple of " + number(o.head_dim_multiple);
  }
  return {};
}

namespace detail {

/// "flops 1831495680 against 1780000000 (+2.89 %, tolerance 4 %)".
[[nodiscard]] inline std::string describe(const budget_row& row) {
  char text[160];
  std::snprintf(text, sizeof text, "%s %lld against %lld (%+.2f %%, tolerance %g %%)", name_of(row.what),
                static_cast<long long>(row.actual), static_cast<long long>(row.expected),
                static_cast<double>(row.ratio() - 1'000'000) / 1e4, static_cast<double>(row.tolerance.ppm) / 1e4);
  return text;
}

}  // namespace detail

/// Why there is no partner: the code with its words, and the constraint or what is wrong with the request.
/// Precondition: the match failed.
[[nodiscard]] inline std::string describe_failure(const match_result& r) {
  const accounting& by = r.options.by;
  const auto because = [&](const char* words) { return std::string(words) + " (" + describe(r.constraint, r) + ")"; };
  switch (r.outcome) {
    case match_outcome::found:
      return {};
    case match_outcome::flops_unmet:
      return because(SMELT_M001);
    case match_outcome::params_unmet:
      return because(SMELT_M002);
    case match_outcome::kv_cache_unmet:
      return because(SMELT_M003);
    case match_outcome::not_together:
      return because(SMELT_M004);
    case match_outcome::base_invalid:
    case match_outcome::loop_invalid:
      return smelt::describe(first_violation(r.partner));
    case match_outcome::options_invalid:
      return SMELT_M005 " (an option is outside its domain)";
    case match_outcome::convention_invalid:
      return std::string(SMELT_M005) + " (convention " + name_of(by.flops) + ": " +
             smelt::describe(gap_of(r.partner, by.flops) != coverage_gap::none ? gap_of(r.partner, by.flops)
                                                                               : coverage_gap::shape) +
             ")";
    case match_outcome::too_large:
      return SMELT_M005
          " (the base or its loop has FLOPs that 64 bits do not hold, or more than 2^56 parameters or bytes, "
          "fewer where visits run on shares of sizes)";
  }
  return {};
}

/// How the match ended, in one line: for a failure why, and the nearest candidate; the sizes, every budget with its
/// error and tolerance, and what was counted. A request that cannot be searched has no candidate.
[[nodiscard]] inline std::string describe(const match_result& r) {
  const accounting& by = r.options.by;
  std::string text = r.found() ? "partner" : describe_failure(r);
  if (!r.found() && r.constraint == match_constraint::none) return text;
  if (!r.found()) text += "; nearest candidate";
  const spec& p = r.partner;
  text += ": width " + std::to_string(p.width) + ", heads " + std::to_string(p.attention.heads) + ", kv_heads " +
          std::to_string(p.attention.kv_heads);
  text += has_latent_attention(p) ? ", kv_rank " + std::to_string(p.attention.latent.kv_rank)
                                  : ", head_dim " + std::to_string(p.attention.head_dim);
  text += ", experts " + std::to_string(p.experts.stored) + ", hidden " + std::to_string(p.experts.hidden);
  for (const budget_row* row : {&r.budgets.flops, &r.budgets.params, &r.budgets.kv_cache})
    text += "; " + detail::describe(*row);
  return text + "; FLOPs by convention " + name_of(by.flops) + ", parameters " + name_of(by.params) + ", " +
         std::to_string(by.kv_bytes_per_element) + " bytes a KV element";
}

/// The partner of `base` as a spec, at run time: what `match` gives at compile time. Throws errc::mismatch with the
/// nearest candidate when there is none, errc::invalid_spec for a base or a loop that cannot exist,
/// errc::invalid_argument for options outside their domain, errc::unsupported for a convention that does not cover
/// the base or its loop, errc::overflow for budgets too large to compare.
[[nodiscard]] inline spec match_or_throw(const spec& base, const loop_spec& loop, const within& tolerance = {},
                                         const match_options& options = {}) {
  const match_result r = find_match(base, loop, tolerance, options);
  switch (r.outcome) {
    case match_outcome::found:
      return r.partner;
    case match_outcome::base_invalid:
      return validate(base);
    case match_outcome::loop_invalid:
      return validate(r.partner);
    case match_outcome::options_invalid:
      throw error(errc::invalid_argument, describe(r));
    case match_outcome::convention_invalid:
      throw error(errc::unsupported, describe(r));
    case match_outcome::too_large:
      throw error(errc::overflow, describe(r));
    case match_outcome::flops_unmet:
    case match_outcome::params_unmet:
    case match_outcome::kv_cache_unmet:
    case match_outcome::not_together:
      break;
  }
  throw error(errc::mismatch, describe(r));
}

}  // namespace smelt
