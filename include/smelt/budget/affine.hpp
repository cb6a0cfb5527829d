// How does a budget depend on an architecture's sizes? It is affine in each of them (visits' projections: quadratic in
// the width), so that a few values tell all.
#pragma once

#include <cstdint>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// The sizes of a spec that move its budgets. Under multi-head latent attention `head_dim` is the rank of the
/// compressed key and value, which is what the cache keeps.
struct size_set {
  int width = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int experts = 0;        ///< stored routed experts
  int hidden = 0;         ///< of one routed expert
  int shared_hidden = 0;  ///< of the shared expert
  int dense_hidden = 0;   ///< of the leading dense layers

  friend constexpr bool operator==(const size_set&, const size_set&) = default;
};

/// The sizes of `s`.
[[nodiscard]] constexpr size_set sizes_of(const spec& s) noexcept {
  return {s.width,
          s.attention.heads,
          s.attention.kv_heads,
          has_latent_attention(s) ? s.attention.latent.kv_rank : s.attention.head_dim,
          s.experts.stored,
          s.experts.hidden,
          s.experts.shared_hidden,
          s.dense_hidden};
}

/// `s` with other sizes.
[[nodiscard]] constexpr spec with_sizes(const spec& s, const size_set& d) noexcept {
  spec r = s;
  r.width = d.width;
  r.attention.heads = d.heads;
  r.attention.kv_heads = d.kv_heads;
  (has_latent_attention(s) ? r.attention.latent.kv_rank : r.attention.head_dim) = d.head_dim;
  r.experts.stored = d.experts;
  r.experts.hidden = d.hidden;
  r.experts.shared_hidden = d.shared_hidden;
  r.dense_hidden = d.dense_hidden;
  return r;
}

/// A budget at one width, as a function of the other sizes: the coefficients of its products.
struct affine_budget {
  std::int64_t one = 0;          ///< independent of the other sizes
  std::int64_t query = 0;        ///< heads * head_dim
  std::int64_t key = 0;          ///< kv_heads * head_dim
  std::int64_t head_dim = 0;     ///< head_dim
  std::int64_t heads = 0;        ///< heads
  std::int64_t experts = 0;      ///< experts
  std::int64_t hidden = 0;       ///< hidden
  std::int64_t expert_body = 0;  ///< experts * hidden
  std::int64_t shared = 0;       ///< shared_hidden
  std::int64_t dense = 0;        ///< dense_hidden

  friend constexpr bool operator==(const affine_budget&, const affine_budget&) = default;
};

/// A budget, times `scale`, as a function of every size; it is affine in the width, too, but for visits' projections.
/// Shares of sizes make fractions of some coefficients, which the scale makes whole.
struct affine_model {
  affine_budget zero;       ///< at width 0
  affine_budget slope;      ///< per unit of width
  std::int64_t square = 0;  ///< width * width
  std::int64_t scale = 1;

  /// The coefficients at `width`.
  [[nodiscard]] constexpr affine_budget at(std::int64_t width) const noexcept {
    return {zero.one + (slope.one + square * width) * width,
            zero.query + slope.query * width,
            zero.key + slope.key * width,
            zero.head_dim + slope.head_dim * width,
            zero.heads + slope.heads * width,
            zero.experts + slope.experts * width,
            zero.hidden + slope.hidden * width,
            zero.expert_body + slope.expert_body * width,
            zero.shared + slope.shared * width,
            zero.dense + slope.dense * width};
  }
};

/// The model of budget / 2^bits, every coefficient rounded down.
[[nodiscard]] constexpr affine_model scaled_down(const affine_model& m, int bits) noexcept {
  const auto shifted = [&](const affine_budget& b) {
    return affine_budget{b.one >> bits,    b.query >> bits,   b.key >> bits,    b.head_dim >> bits,
                         b.heads >> bits,  b.experts >> bits, b.hidden >> bits, b.expert_body >> bits,
                         b.shared >> bits, b.dense >> bits};
  };
  return {shifted(m.zero), shifted(m.slope), m.square >> bits, m.scale};
}

/// The part of `b` that attention's sizes, and those of shared and dense feed-forwards, decide.
[[nodiscard]] constexpr std::int64_t outside_experts(const affine_budget& b, const size_set& d) noexcept {
  const std::int64_t size = d.head_dim;
  return b.one + b.query * (d.heads * size) + b.key * (d.kv_heads * size) + b.head_dim * size + b.heads * d.heads +
         b.shared * d.shared_hidden + b.dense * d.dense_hidden;
}

/// The least sizes that every share of a plan leaves a whole part of.
struct size_units {
  std::int64_t width = 1;
  std::int64_t hidden = 1;

  friend constexpr bool operator==(const size_units&, const size_units&) = default;
};

namespace detail {

/// The least common multiple. Precondition: both >= 1, below 2^31.
[[nodiscard]] constexpr std::int64_t common_multiple(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t x = a;
  std::int64_t y = b;
  while (y != 0) {
    const std::int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}
/// The denominator of `share` in lowest terms. Precondition: 0 < num <= den.
[[nodiscard]] constexpr std::int64_t lowest_denominator(const ratio& share) noexcept {
  return common_multiple(share.num, share.den) / share.num;
}

}  // namespace detail

/// The units of the plans of `list`. Every width of a valid spec is a multiple of its plans' unit, and so is the hidden
/// width of its experts. Precondition: shares are above 0 and at most 1, and a valid spec has the list.
[[nodiscard]] constexpr size_units units_of(const visit_list& list) noexcept {
  size_units u;
  for (int i = 0; i < list.runs(); ++i) {
    const visit_plan& plan = visit_list::plan_of(list, i);
    u.width = detail::common_multiple(u.width, detail::lowest_denominator(plan.stream));
    u.hidden = detail::common_multiple(u.hidden, detail::lowest_denominator(plan.expert_hidden));
  }
  return u;
}

namespace detail {

/// The coefficients of `budget` at one width, by differences between sizes of one and two units; times the unit of
/// hidden widths.
template <class Budget>
[[nodiscard]] constexpr affine_budget coefficients_at(const spec& s, std::int64_t width, std::int64_t hidden_unit,
                                                      const Budget& budget) {
  const bool shared = s.experts.shared_hidden > 0;
  const bool dense = s.dense_layers > 0;
  const int one_hidden = static_cast<int>(hidden_unit);
  const size_set unit{static_cast<int>(width), 1, 1, 1, 1, one_hidden, shared ? 1 : 0, dense ? 1 : 0};
  const auto value = [&](int heads, int kv_heads, int head_dim, int experts, int hidden) {
    size_set d = unit;
    d.heads = heads;
    d.kv_heads = kv_heads;
    d.head_dim = head_dim;
    d.experts = experts;
    d.hidden = hidden * one_hidden;
    return budget(with_sizes(s, d));
  };
  const std::int64_t base = value(1, 1, 1, 1, 1);
  const std::int64_t more_heads = value(2, 1, 1, 1, 1) - base;
  const std::int64_t larger_heads = value(1, 1, 2, 1, 1) - base;
  const std::int64_t more_experts = value(1, 1, 1, 2, 1) - base;
  const std::int64_t wider_experts = value(1, 1, 1, 1, 2) - base;
  affine_budget b;
  b.query = value(2, 1, 2, 1, 1) - base - more_heads - larger_heads;
  b.key = value(1, 2, 1, 1, 1) - base;
  b.heads = more_heads - b.query;
  b.head_dim = larger_heads - b.query - b.key;
  b.expert_body = value(1, 1, 1, 2, 2) - base - more_experts - wider_experts;
  b.experts = more_experts - b.expert_body;
  b.hidden = wider_experts - b.expert_body;
  size_set d = unit;
  d.shared_hidden = 2;
  b.shared = shared ? budget(with_sizes(s, d)) - base : 0;
  d = unit;
  d.dense_hidden = 2;
  b.dense = dense ? budget(with_sizes(s, d)) - base : 0;
  b.one = base - (b.query + b.key + b.head_dim + b.heads + b.experts + b.hidden + b.expert_body + b.shared + b.dense);
  if (hidden_unit == 1) return b;
  // Per unit of hidden width they may be fractions: everything else times the unit instead.
  return {b.one * hidden_unit,
          b.query * hidden_unit,
          b.key * hidden_unit,
          b.head_dim * hidden_unit,
          b.heads * hidden_unit,
          b.experts * hidden_unit,
          b.hidden,
          b.expert_body,
          b.shared * hidden_unit,
          b.dense * hidden_unit};
}

}  // namespace detail

/// How `budget` (a function of a spec, in exact integers) depends on the sizes of specs like `s`. Twenty evaluations,
/// thirty when a visit runs on a share of the residual stream; the scale is the product of the plans' units.
/// Precondition: `budget` is a sum of products of sizes in which the width, and each of the others, appears at most
/// once, and of the width's square; parameters, FLOPs of a sequence and KV bytes are.
template <class Budget>
[[nodiscard]] constexpr affine_model affine_model_of(const spec& s, const Budget& budget) {
  const std::int64_t unit = units_of(s.loop.visits).width;
  const std::int64_t hidden_unit = units_of(s.loop.visits).hidden;
  affine_budget at1 = detail::coefficients_at(s, unit, hidden_unit, budget);
  affine_budget at2 = detail::coefficients_at(s, 2 * unit, hidden_unit, budget);
  affine_model m;
  m.scale = unit * hidden_unit;
  if (unit > 1) {
    const affine_budget at3 = detail::coefficients_at(s, 3 * unit, hidden_unit, budget);
    const std::int64_t bend = (at3.one - 2 * at2.one + at1.one) / 2;  // square x unit^2
    m.square = bend / unit;                                           // times the unit, as all coefficients below
    at1.one -= bend;
    at2.one -= 4 * bend;
  }
  m.slope = {
      at2.one - at1.one,       at2.query - at1.query,     at2.key - at1.key,       at2.head_dim - at1.head_dim,
      at2.heads - at1.heads,   at2.experts - at1.experts, at2.hidden - at1.hidden, at2.expert_body - at1.expert_body,
      at2.shared - at1.shared, at2.dense - at1.dense};
  const auto value_at_0 = [&](std::int64_t affine_budget::* c) { return (at1.*c - m.slope.*c) * unit; };
  m.zero = {value_at_0(&affine_budget::one),    value_at_0(&affine_budget::query),
            value_at_0(&affine_budget::key),    value_at_0(&affine_budget::head_dim),
            value_at_0(&affine_budget::heads),  value_at_0(&affine_budget::experts),
            value_at_0(&affine_budget::hidden), value_at_0(&affine_budget::expert_body),
            value_at_0(&affine_budget::shared), value_at_0(&affine_budget::dense)};
  return m;
}

}  // namespace smelt
