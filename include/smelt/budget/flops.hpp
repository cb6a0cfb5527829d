// How many operations does a token cost? By part, exactly, under a named convention.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/layer_groups.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Operations of one sequence of `context` tokens, and per token. The parts are forward operations of the whole
/// sequence, exact integers that sum to `forward`; figures per token are rounded to nearest. A convention that does not
/// cover the architecture leaves every figure 0 and names the gap.
struct flop_count {
  coverage_gap gap = coverage_gap::none;
  std::int64_t context = 0;  ///< tokens of the sequence, T

  std::int64_t attention_projections = 0;
  std::int64_t attention_scores = 0;  ///< Q K^T and A V
  std::int64_t router = 0;
  std::int64_t experts = 0;         ///< the routed experts that a token visits
  std::int64_t shared_experts = 0;  ///< with their gates
  std::int64_t dense_ffn = 0;
  std::int64_t head = 0;
  std::int64_t input_table = 0;
  std::int64_t exit_gate = 0;
  std::int64_t vectors = 0;  ///< biases and norm gains

  std::int64_t forward = 0;            ///< sum of the parts
  std::int64_t train = 0;              ///< forward and backward
  std::int64_t forward_per_token = 0;  ///< forward / context
  std::int64_t train_per_token = 0;    ///< train / context

  /// Whether the convention covers the architecture.
  [[nodiscard]] constexpr bool covered() const noexcept { return gap == coverage_gap::none; }
};

/// What `c` does not know about `s`; `none` when it covers all of it.
[[nodiscard]] constexpr coverage_gap gap_of(const spec& s, const convention& c) noexcept {
  const attention_spec& a = s.attention;
  const bool routed = s.dense_layers < s.layers;
  if (!c.covers_loops && span_of(s).visits > 1) return coverage_gap::loop;
  if (!c.covers_windows && a.window > 0) return coverage_gap::window;
  if (!c.covers_experts && routed) return coverage_gap::experts;
  if (!c.covers_gated_ffn && s.ffn == ffn_kind::swiglu) return coverage_gap::gated_ffn;
  if (!c.covers_latent_attention && has_latent_attention(s)) return coverage_gap::latent_attention;
  if (!c.covers_any_shape && (std::int64_t{a.heads} * a.head_dim != s.width || a.kv_heads != a.heads ||
                              (s.dense_layers > 0 && s.dense_hidden != std::int64_t{4} * s.width)))
    return coverage_gap::shape;
  return coverage_gap::none;
}

namespace detail {

/// Twice the (query, key) pairs that `positions` positions count under `c`; doubled because (T + 1) / 2 need not be
/// whole. `tokens` of the original sequence are `positions` after compression.
[[nodiscard]] constexpr count doubled_pairs(std::int64_t positions, std::int64_t tokens, int window, int divisor,
                                            const convention& c) noexcept {
  const count t = positions;
  const bool windowed = window > 0 && window < positions;
  switch (c.positions) {
    case attended::causal:
      // T w - w (w - 1) / 2, doubled; the window never exceeds T here, so that the difference is positive.
      return windowed ? count(2 * positions - window + 1) * window : t * (t + 1);
    case attended::full_square:
      return t * (windowed ? window : positions) * 2;
    case attended::half_square:
      return t * (windowed ? window : positions);
    case attended::given:
      return count(tokens) * c.mean_attended * 2 / (std::int64_t{divisor} * divisor);
  }
  return {};
}

/// a / b to nearest; the mark of an overflow stays. Precondition: b >= 1.
[[nodiscard]] constexpr std::int64_t divide_to_nearest(std::int64_t a, std::int64_t b) noexcept {
  return a == overflowed ? a : a / b + (a % b >= b - a % b ? 1 : 0);
}

}  // namespace detail

/// Pairs of (query, key) positions of a causal layer over `tokens` positions: T (T + 1) / 2, or T w - w (w - 1) / 2
/// under a window w < T (0 is none).
[[nodiscard]] constexpr std::int64_t causal_pairs(std::int64_t tokens, int window = 0) noexcept {
  return (detail::doubled_pairs(tokens, tokens, window, 1, {}) / 2).value;
}

/// The operations of `s` on sequences of `tokens` under convention `c`. Precondition: `s` satisfies the rules of
/// spec/rules.hpp, tokens >= 1.
[[nodiscard]] constexpr flop_count flops(const spec& s, const convention& c, std::int64_t tokens) noexcept {
  using detail::count;
  flop_count n;
  n.context = tokens;
  n.gap = gap_of(s, c);
  if (!n.covered()) return n;

  const layer_parameters one = parameters_of_layer(s);
  const latent_attention_spec& latent = s.attention.latent;
  const bool is_latent = has_latent_attention(s);
  const std::int64_t key_dim = is_latent ? latent.nope_dim + latent.rope_dim : s.attention.head_dim;
  const std::int64_t value_dim = is_latent ? latent.value_dim : s.attention.head_dim;
  const count score_width = count(s.attention.heads) * (key_dim + (c.score_products > 1 ? value_dim : 0));
  const std::int64_t unit = c.unit == operation::flop ? 2 : 1;
  const std::int64_t experts = c.every_expert ? s.experts.stored : s.experts.active;

  count projections, scores, router, routed, shared, dense, vectors;
  for_each_layer_group(s, [&](const layer_group& g) {
    const std::int64_t positions = tokens / g.length_divisor;
    const count runs = count(positions) * g.layers * unit;
    projections += runs * one.attention_matrices;
    scores += count(g.layers) * unit *
              (score_width * detail::doubled_pairs(positions, tokens, g.window, g.length_divisor, c) / 2);
    count layer_vectors = count(one.attention_vectors) + one.norm_vectors;
    if (g.experts) {
      if (c.router) router += runs * one.router_matrices;
      routed += runs * one.expert_matrices * experts;
      shared += runs * one.shared_matrices;
      layer_vectors += count(one.router_vectors) + one.shared_vectors + count(one.expert_vectors) * experts;
    } else {
      dense += runs * one.dense_matrices;
      layer_vectors += one.dense_vectors;
    }
    if (c.vectors) vectors += runs * layer_vectors;
  });
  const count each_token = count(tokens) * unit;
  const count table = count(table_rows(s)) * s.width;
  if (c.vectors)
    vectors += each_token * (count(s.norm_bias ? 2 : 1) * s.width + (s.head_bias && c.head ? table_rows(s) : 0) +
                             (s.exit_gate ? span_of(s).visits : 0));

  n.attention_projections = projections.value;
  n.attention_scores = scores.value;
  n.router = router.value;
  n.experts = routed.value;
  n.shared_experts = shared.value;
  n.dense_ffn = dense.value;
  n.head = c.head ? (each_token * table).value : 0;
  n.input_table = c.input_table && !s.tied_head ? (each_token * table).value : 0;
  n.exit_gate = s.exit_gate ? (each_token * s.width * span_of(s).visits).value : 0;
  n.vectors = vectors.value;

  const count layers =
      projections + scores + router + routed + shared + dense + n.exit_gate + vectors;  // all but tables
  const count forward = layers + n.head + n.input_table;
  n.forward = forward.value;
  n.train = (forward * (1 + std::int64_t{c.backward}) + (c.recompute ? layers : count(0))).value;
  n.forward_per_token = detail::divide_to_nearest(n.forward, tokens);
  n.train_per_token = detail::divide_to_nearest(n.train, tokens);
  return n;
}

/// The same on sequences of the spec's own context.
[[nodiscard]] constexpr flop_count flops(const spec& s, const convention& c = conventions::smelt) noexcept {
  return flops(s, c, s.context);
}

}  // namespace smelt
