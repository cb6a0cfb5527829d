// How many operations does a token cost? By part, exactly, under a named convention.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/layer_groups.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

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
  std::int64_t visit_projections = 0;  ///< down and up of visits on a share of the residual stream
  std::int64_t vectors = 0;            ///< biases, norm gains, and the encoders and writebacks of compressed visits

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

/// Twice the (query, key) pairs that a layer at `positions` positions counts under `c`; doubled because (T + 1) / 2
/// need not be whole. `positions` is `tokens` / `divisor`.
template <class Count>
[[nodiscard]] constexpr Count doubled_pairs(std::int64_t tokens, int window, int divisor,
                                            const convention& c) noexcept {
  const std::int64_t positions = tokens / divisor;
  const bool windowed = window > 0 && window < positions;
  switch (c.positions) {
    case attended::causal:
      // T w - w (w - 1) / 2, doubled and factored.
      return windowed ? (Count(positions) + (positions - window + 1)) * window : Count(positions) * (positions + 1);
    case attended::full_square:
      return Count(positions) * (windowed ? window : positions) * 2;
    case attended::half_square:
      return Count(positions) * (windowed ? window : positions);
    case attended::given:
      return Count(tokens) * c.mean_attended * 2 / (std::int64_t{divisor} * divisor);
  }
  return 0;
}

/// a / b to nearest; the mark of an overflow stays. Precondition: b >= 1.
[[nodiscard]] constexpr std::int64_t divide_to_nearest(std::int64_t a, std::int64_t b) noexcept {
  return a == overflowed ? a : a / b + (a % b >= b - a % b ? 1 : 0);
}

template <class Count>
[[nodiscard]] constexpr flop_count flops_in(const spec& s, const layer_parameters& one, const convention& c,
                                            std::int64_t tokens) noexcept {
  flop_count n;
  n.context = tokens;
  n.gap = gap_of(s, c);
  if (!n.covered()) return n;

  const latent_attention_spec& latent = s.attention.latent;
  const bool is_latent = has_latent_attention(s);
  const std::int64_t key_dim = is_latent ? std::int64_t{latent.nope_dim} + latent.rope_dim : s.attention.head_dim;
  const std::int64_t value_dim = is_latent ? latent.value_dim : s.attention.head_dim;
  const Count score_width = Count(s.attention.heads) * (key_dim + (c.score_products > 1 ? value_dim : 0));
  const std::int64_t unit = c.unit == operation::flop ? 2 : 1;

  // Of every group: positions x layers, times what one layer multiplies at one position.
  Count projected = 0, routed = 0, expert = 0, shared_expert = 0, dense_hidden = 0, scores = 0, added = 0;
  const layer_groups groups(s);
  const int size = groups.size();
  for (int i = 0; i < size; ++i) {
    const layer_group g = groups[i];
    if (g.layers == 0) continue;
    const bool whole = g.width == s.width && g.hidden == s.experts.hidden;
    const layer_parameters p = whole ? one : layer_parameters_in<Count>(s, g.width, g.hidden);
    const Count runs = Count(tokens / g.length_divisor) * g.layers;
    const std::int64_t visited = c.every_expert ? s.experts.stored : g.active;
    projected += runs * p.attention_matrices;
    scores += score_width * doubled_pairs<Count>(tokens, g.window, g.length_divisor, c) / 2 * g.layers;
    if (g.experts) {
      routed += runs * p.router_matrices;
      expert += runs * p.expert_matrices * visited;
      shared_expert += runs * p.shared_matrices;
    } else {
      dense_hidden += runs * p.dense_matrices;
    }
    if (!c.vectors) continue;
    added += runs * (Count(p.attention_vectors) + p.norm_vectors);
    added += g.experts ? runs * (Count(p.router_vectors) + p.shared_vectors + Count(p.expert_vectors) * visited)
                       : runs * p.dense_vectors;
  }
  Count between = 0;  // of visits' projections
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const visit_plan& plan = visit_list::plan_of(s.loop.visits, i);
    if (is_plain(plan)) continue;
    const std::int64_t times = visit_list::length_of(s.loop.visits, i);
    const std::int64_t positions = tokens / plan.compression;
    between += Count(positions) * visit_parameters_in<Count>(s, plan).projections * times;
    // Every token of a whole chunk enters once, twice where a scorer weighs it; each from the first latent's last token
    // on receives once.
    if (!c.vectors || plan.compression == 1 || positions == 0) continue;
    const std::int64_t entries = plan.encoder == encoder_kind::softmax ? 2 : 1;
    added += (Count(positions) * plan.compression * entries + (tokens - plan.compression + 1)) * s.width * times;
  }

  const Count each_token = Count(tokens) * unit;
  const Count table = Count(table_rows(s)) * s.width;
  const int visits = span_of(s).visits;
  const Count projections = projected * unit;
  const Count router = c.router ? routed * unit : Count(0);
  const Count routed_experts = expert * unit;
  const Count shared = shared_expert * unit;
  const Count dense = dense_hidden * unit;
  const Count visit_projections = between * unit;
  const Count exit_gate = s.exit_gate ? each_token * s.width * visits : Count(0);
  const Count head = c.head ? each_token * table : Count(0);
  const Count input_table = c.input_table && !s.tied_head ? each_token * table : Count(0);
  Count vectors = 0;
  if (c.vectors) {
    const Count once =
        Count(s.norm_bias ? 2 : 1) * s.width + (s.head_bias && c.head ? table_rows(s) : 0) + (s.exit_gate ? visits : 0);
    vectors = added * unit + each_token * once;
  }

  const Count layers = projections + scores * unit + router + routed_experts + shared + dense + exit_gate +
                       visit_projections + vectors;  // all but tables
  const Count forward = layers + head + input_table;
  n.attention_projections = std::int64_t(projections);
  n.attention_scores = std::int64_t(scores * unit);
  n.router = std::int64_t(router);
  n.experts = std::int64_t(routed_experts);
  n.shared_experts = std::int64_t(shared);
  n.dense_ffn = std::int64_t(dense);
  n.head = std::int64_t(head);
  n.input_table = std::int64_t(input_table);
  n.exit_gate = std::int64_t(exit_gate);
  n.visit_projections = std::int64_t(visit_projections);
  n.vectors = std::int64_t(vectors);
  n.forward = std::int64_t(forward);
  n.train = std::int64_t(forward * (1 + std::int64_t{c.backward}) + (c.recompute ? layers : Count(0)));
  n.forward_per_token = divide_to_nearest(n.forward, tokens);
  n.train_per_token = divide_to_nearest(n.train, tokens);
  return n;
}

}  // namespace detail

/// Pairs of (query, key) positions of a causal layer over `tokens` positions: T (T + 1) / 2, or T w - w (w - 1) / 2
/// under a window w < T (0 is none).
[[nodiscard]] constexpr std::int64_t causal_pairs(std::int64_t tokens, int window = 0) noexcept {
  return std::int64_t(detail::doubled_pairs<detail::checked_count>(tokens, window, 1, {}) / 2);
}

/// The operations of `s` on sequences of `tokens` under convention `c`. Precondition: `s` satisfies the rules of
/// spec/rules.hpp, tokens >= 1.
[[nodiscard]] constexpr flop_count flops(const spec& s, const convention& c, std::int64_t tokens) noexcept {
  if (std::is_constant_evaluated())
    return detail::flops_in<detail::unchecked_count>(s, parameters_of_layer(s), c, tokens);
  return detail::flops_in<detail::checked_count>(s, parameters_of_layer(s), c, tokens);
}

/// The same on sequences of the spec's own context.
[[nodiscard]] constexpr flop_count flops(const spec& s, const convention& c = conventions::smelt) noexcept {
  return flops(s, c, s.context);
}

}  // namespace smelt
