// How many parameters does a spec have? In total, active for a token, and by component.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

/// Parameters of one physical layer's pieces, split into matrices (multiplied with the token) and vectors (biases,
/// gains of norms inside the piece, attention sinks).
struct layer_parameters {
  std::int64_t attention_matrices = 0, attention_vectors = 0;
  std::int64_t router_matrices = 0, router_vectors = 0;
  std::int64_t expert_matrices = 0, expert_vectors = 0;  ///< ONE routed expert
  std::int64_t shared_matrices = 0, shared_vectors = 0;  ///< the shared expert with its gate
  std::int64_t dense_matrices = 0, dense_vectors = 0;    ///< the dense feed-forward of a leading layer
  std::int64_t norm_vectors = 0;                         ///< the layer's norms
};

/// Parameters by component and in the sums that papers and tools print. Every figure is exact; `overflowed` marks one
/// that does not fit (budget/checked.hpp).
struct parameter_count {
  std::int64_t total = 0;                       ///< unique parameters: the sum of the components
  std::int64_t active = 0;                      ///< used by one token, with the input table
  std::int64_t active_without_input_table = 0;  ///< the same without an untied input table, which is only looked up
  std::int64_t non_embedding = 0;               ///< total without input table, head and learned positions
  std::int64_t stored = 0;                      ///< total plus the second copy of a tied head in files that keep both
  std::int64_t non_expert = 0;                  ///< total without the routed experts

  // Components: they sum to `total`.
  std::int64_t embedding = 0;       ///< input table: padded vocabulary x width
  std::int64_t positions = 0;       ///< learned position table
  std::int64_t head = 0;            ///< output head with its bias; a tied head keeps only the bias
  std::int64_t attention = 0;       ///< projections, biases, query/key norms, sinks of the physical layers
  std::int64_t own_attention = 0;   ///< further copies of attention kept by visits with attention of their own
  std::int64_t router = 0;          ///< routers with their biases
  std::int64_t experts = 0;         ///< routed experts, all of them
  std::int64_t shared_experts = 0;  ///< shared experts with their gates
  std::int64_t dense_ffn = 0;       ///< feed-forward of the leading dense layers
  std::int64_t norms = 0;           ///< norms of the layers and the final one
  std::int64_t exit_gate = 0;       ///< width -> 1 with bias
  std::int64_t coefficients = 0;    ///< learned coefficients, one a visit
  std::int64_t encoders = 0;        ///< of compressed visits
  std::int64_t writebacks = 0;      ///< of compressed visits
  std::int64_t projections = 0;     ///< down and up of visits on a share of the residual stream

  std::int64_t active_experts = 0;  ///< of `experts`, what one token meets: in the span, in the visit that runs most

  // The looped-model papers' accounting: matrices only, no embeddings, no head.
  std::int64_t matrices = 0;         ///< N: attention, router, every expert, projections of visits
  std::int64_t matrices_active = 0;  ///< N_act: attention, router, k experts; one traversal of the physical layers
  std::int64_t matrices_loop = 0;    ///< N_loop: the part of N_act inside the looped span; 0 without a loop
};

/// Parameters that one visit keeps for itself, outside the layers: once a visit, whatever the number of layers it runs.
struct visit_parameters {
  std::int64_t coefficient = 0;  ///< the learned coefficient
  std::int64_t encoder = 0;      ///< conv: c x H, softmax: H
  std::int64_t writeback = 0;    ///< scaled, normalised: c x H, scalar: c
  std::int64_t projections = 0;  ///< down and up: twice H x Hs
};

namespace detail {

/// Elements of one feed-forward's matrices: three for SwiGLU, two for GELU.
template <class Count>
[[nodiscard]] constexpr Count ffn_matrices(const spec& s, int width, int hidden) noexcept {
  return Count(s.ffn == ffn_kind::swiglu ? 3 : 2) * width * hidden;
}
/// Elements of the biases of one feed-forward's matrices.
template <class Count>
[[nodiscard]] constexpr Count ffn_biases(const spec& s, int width, int hidden) noexcept {
  return Count(s.ffn == ffn_kind::swiglu ? 2 : 1) * hidden + width;
}
template <class Count>
[[nodiscard]] constexpr Count attention_matrices(const spec& s, Count width) noexcept {
  const attention_spec& a = s.attention;
  const Count heads = a.heads;
  if (!has_latent_attention(s)) return width * a.head_dim * (Count(2) * a.heads + Count(2) * a.kv_heads);
  const latent_attention_spec& l = a.latent;
  const Count query_width = heads * (Count(l.nope_dim) + l.rope_dim);
  const Count query = l.q_rank > 0 ? width * l.q_rank + query_width * l.q_rank : width * query_width;
  const Count key_value =
      width * (Count(l.kv_rank) + l.rope_dim) + Count(l.kv_rank) * heads * (Count(l.nope_dim) + l.value_dim);
  return query + key_value + heads * l.value_dim * width;
}
template <class Count>
[[nodiscard]] constexpr Count attention_vectors(const spec& s, int width) noexcept {
  const attention_spec& a = s.attention;
  Count n = a.sinks ? a.heads : 0;
  if (a.o_bias) n += width;
  if (has_latent_attention(s)) return n + a.latent.kv_rank + a.latent.q_rank;
  const Count query = Count(a.heads) * a.head_dim;
  const Count key = Count(a.kv_heads) * a.head_dim;
  if (a.qkv_bias) n += query + key + key;
  if (a.norm == qk_norm::per_head) n += Count(2) * a.head_dim;
  if (a.norm == qk_norm::full_width) n += query + key;
  return n;
}
/// Named tensors of one layer's attention.
[[nodiscard]] constexpr int attention_tensors(const spec& s) noexcept {
  const attention_spec& a = s.attention;
  const int common = (a.sinks ? 1 : 0) + (a.o_bias ? 1 : 0);
  if (has_latent_attention(s)) return common + 4 + (a.latent.q_rank > 0 ? 3 : 1);
  return common + 4 + (a.qkv_bias ? 3 : 0) + (a.norm != qk_norm::none ? 2 : 0);
}

/// Parameters of the pieces of one layer, in `Count` arithmetic, as far as they work on the first `width` channels of
/// the residual stream and the first `hidden` units of every routed expert.
template <class Count>
[[nodiscard]] constexpr layer_parameters layer_parameters_in(const spec& s, int width, int hidden) noexcept {
  const experts_spec& e = s.experts;
  layer_parameters p;
  p.attention_matrices = std::int64_t(attention_matrices<Count>(s, width));
  p.attention_vectors = std::int64_t(attention_vectors<Count>(s, width));
  p.norm_vectors = std::int64_t(Count(s.norm_bias ? 2 : 1) * s.norms_per_layer * width);
  if (s.dense_layers > 0) {
    p.dense_matrices = std::int64_t(ffn_matrices<Count>(s, width, s.dense_hidden));
    if (s.dense_bias) p.dense_vectors = std::int64_t(ffn_biases<Count>(s, width, s.dense_hidden));
  }
  if (s.dense_layers == s.layers) return p;
  p.router_matrices = std::int64_t(Count(width) * e.stored);
  p.router_vectors = std::int64_t(Count(e.router_bias ? e.stored : 0) + (e.balance_bias ? e.stored : 0));
  p.expert_matrices = std::int64_t(ffn_matrices<Count>(s, width, hidden));
  if (e.bias) p.expert_vectors = std::int64_t(ffn_biases<Count>(s, width, hidden));
  if (e.shared_hidden > 0) {
    p.shared_matrices = std::int64_t(ffn_matrices<Count>(s, width, e.shared_hidden) + (e.shared_gate ? width : 0));
    if (e.bias) p.shared_vectors = std::int64_t(ffn_biases<Count>(s, width, e.shared_hidden));
  }
  return p;
}
template <class Count>
[[nodiscard]] constexpr layer_parameters layer_parameters_in(const spec& s) noexcept {
  return layer_parameters_in<Count>(s, s.width, s.experts.hidden);
}

template <class Count>
[[nodiscard]] constexpr visit_parameters visit_parameters_in(const spec& s, const visit_plan& plan) noexcept {
  visit_parameters p;
  p.coefficient = plan.learned ? 1 : 0;
  if (plan.compression > 1) {
    const std::int64_t chunk = std::int64_t(Count(s.width) * plan.compression);
    p.encoder = plan.encoder == encoder_kind::conv ? chunk : plan.encoder == encoder_kind::softmax ? s.width : 0;
    p.writeback = plan.writeback == writeback_kind::direct   ? 0
                  : plan.writeback == writeback_kind::scalar ? plan.compression
                                                             : chunk;
  }
  if (is_narrow(plan)) p.projections = std::int64_t(Count(s.width) * width_of(s, plan) * 2);
  return p;
}

/// The most that a visit of the span uses of one layer's routed experts, in elements of matrices and of vectors.
template <class Count>
struct expert_use {
  Count matrices = 0, vectors = 0;
};
template <class Count>
[[nodiscard]] constexpr expert_use<Count> most_expert_use(const spec& s, const layer_parameters& one) noexcept {
  expert_use<Count> most;
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const visit_plan& plan = visit_list::plan_of(s.loop.visits, i);
    const std::int64_t active = active_of(s, plan);
    expert_use<Count> used{Count(one.expert_matrices) * active, Count(one.expert_vectors) * active};
    if (!is_whole(plan.expert_hidden)) {
      const int hidden = hidden_of(s, plan);
      used.matrices = ffn_matrices<Count>(s, s.width, hidden) * active;
      if (s.experts.bias) used.vectors = ffn_biases<Count>(s, s.width, hidden) * active;
    }
    if (std::int64_t(used.matrices) > std::int64_t(most.matrices)) most = used;
  }
  return most;
}

}  // namespace detail

/// Parameters of the pieces of one layer of `s`. Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr layer_parameters parameters_of_layer(const spec& s) noexcept {
  if (std::is_constant_evaluated()) return detail::layer_parameters_in<detail::unchecked_count>(s);
  return detail::layer_parameters_in<detail::checked_count>(s);
}

/// Parameters that one visit by `plan` keeps for itself, without attention of its own. Precondition: `s` satisfies the
/// rules of spec/rules.hpp.
[[nodiscard]] constexpr visit_parameters parameters_of_visit(const spec& s, const visit_plan& plan) noexcept {
  if (std::is_constant_evaluated()) return detail::visit_parameters_in<detail::unchecked_count>(s, plan);
  return detail::visit_parameters_in<detail::checked_count>(s, plan);
}

namespace detail {

template <class Count>
[[nodiscard]] constexpr parameter_count parameters_in(const spec& s, const layer_parameters& one) noexcept {
  const loop_span span = span_of(s);
  const std::int64_t dense_layers = s.dense_layers;
  const std::int64_t routed_layers = s.layers - s.dense_layers;
  const std::int64_t stored = routed_layers == 0 ? 0 : s.experts.stored;
  const std::int64_t active = routed_layers == 0 ? 0 : s.experts.active;
  const int dense_before = s.dense_layers > span.first ? s.dense_layers - span.first : 0;
  const std::int64_t dense_in_span = dense_before < span.count ? dense_before : span.count;
  const std::int64_t routed_in_span = span.count - dense_in_span;
  const std::int64_t routed_outside = routed_layers - routed_in_span;
  const std::int64_t copies = span.count == 0 ? 0 : std::int64_t{attention_copies(s)} * span.count;
  const Count table = Count(table_rows(s)) * s.width;
  const Count attention = Count(one.attention_matrices) + one.attention_vectors;
  const Count routed_expert = (Count(one.expert_matrices) + one.expert_vectors) * routed_layers;

  const Count positions = s.positions == position_kind::learned ? Count(s.context) * s.width : Count(0);
  const Count head = (s.tied_head ? Count(0) : table) + (s.head_bias ? table_rows(s) : 0);
  const Count all_attention = attention * s.layers;
  const Count own_attention = attention * copies;
  const Count router = (Count(one.router_matrices) + one.router_vectors) * routed_layers;
  const Count experts = routed_expert * stored;
  const expert_use<Count> in_span = most_expert_use<Count>(s, one);
  const Count active_experts = (Count(one.expert_matrices) + one.expert_vectors) * active * routed_outside +
                               (in_span.matrices + in_span.vectors) * routed_in_span;
  Count coefficients = 0, encoders = 0, writebacks = 0, projections = 0;
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const visit_parameters v = visit_parameters_in<Count>(s, visit_list::plan_of(s.loop.visits, i));
    const std::int64_t times = visit_list::length_of(s.loop.visits, i);
    coefficients += Count(v.coefficient) * times;
    encoders += Count(v.encoder) * times;
    writebacks += Count(v.writeback) * times;
    projections += Count(v.projections) * times;
  }
  const Count shared = (Count(one.shared_matrices) + one.shared_vectors) * routed_layers;
  const Count dense = (Count(one.dense_matrices) + one.dense_vectors) * dense_layers;
  const Count norms = Count(one.norm_vectors) * s.layers + Count(s.norm_bias ? 2 : 1) * s.width;
  const Count exit_gate = s.exit_gate ? Count(s.width) + 1 : Count(0);
  const Count body = all_attention + own_attention + router + shared + dense + norms + exit_gate + coefficients +
                     encoders + writebacks + projections;
  const Count looked_up = table + positions;

  parameter_count p;
  p.total = std::int64_t(body + experts + looked_up + head);
  p.active = std::int64_t(body + active_experts + looked_up + head);
  p.active_without_input_table = std::int64_t(body + active_experts + (s.tied_head ? looked_up : positions) + head);
  p.non_embedding = std::int64_t(body + experts);
  p.stored = std::int64_t(body + experts + looked_up + head + (s.tied_head ? table : Count(0)));
  p.non_expert = std::int64_t(body + looked_up + head);
  p.embedding = std::int64_t(table);
  p.positions = std::int64_t(positions);
  p.head = std::int64_t(head);
  p.attention = std::int64_t(all_attention);
  p.own_attention = std::int64_t(own_attention);
  p.router = std::int64_t(router);
  p.experts = std::int64_t(experts);
  p.shared_experts = std::int64_t(shared);
  p.dense_ffn = std::int64_t(dense);
  p.norms = std::int64_t(norms);
  p.exit_gate = std::int64_t(exit_gate);
  p.coefficients = std::int64_t(coefficients);
  p.encoders = std::int64_t(encoders);
  p.writebacks = std::int64_t(writebacks);
  p.projections = std::int64_t(projections);
  p.active_experts = std::int64_t(active_experts);

  // One layer's matrices for one traversal, by kind of layer.
  const Count expert_matrices = one.expert_matrices;
  const Count dense_layer = Count(one.attention_matrices) + one.dense_matrices;
  const Count routed_layer = Count(one.attention_matrices) + one.router_matrices + one.shared_matrices;
  const Count layers_in_span = (routed_layer + in_span.matrices) * routed_in_span + dense_layer * dense_in_span;
  p.matrices = std::int64_t((routed_layer + expert_matrices * stored) * routed_layers + dense_layer * dense_layers +
                            Count(one.attention_matrices) * copies + projections);
  p.matrices_active = std::int64_t(layers_in_span + (routed_layer + expert_matrices * active) * routed_outside +
                                   dense_layer * (dense_layers - dense_in_span));
  p.matrices_loop = std::int64_t(layers_in_span);
  return p;
}

}  // namespace detail

/// The parameters of `s`. Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr parameter_count parameters(const spec& s) noexcept {
  if (std::is_constant_evaluated()) return detail::parameters_in<detail::unchecked_count>(s, parameters_of_layer(s));
  return detail::parameters_in<detail::checked_count>(s, parameters_of_layer(s));
}

/// The figure of `p` that `m` names.
[[nodiscard]] constexpr std::int64_t figure_of(const parameter_count& p, parameter_metric m) noexcept {
  switch (m) {
    case parameter_metric::non_embedding:
      return p.non_embedding;
    case parameter_metric::total:
      return p.total;
    case parameter_metric::active:
      return p.active;
    case parameter_metric::matrices:
      return p.matrices;
  }
  return 0;
}

/// N_unroll(R) = N_act + (R - 1) N_loop: matrices that a token meets when the looped span is visited `visits` times.
/// Training costs 6 N_unroll D FLOPs without attention scores, inference 2 N_unroll a token.
/// Precondition: visits >= 1.
[[nodiscard]] constexpr std::int64_t unrolled_parameters(const parameter_count& p, int visits) noexcept {
  using detail::checked_count;
  return std::int64_t(checked_count(p.matrices_active) + checked_count(p.matrices_loop) * (visits - 1));
}

/// Named tensors of a file that keeps every weight once and every expert matrix by itself. Precondition: `s` satisfies
/// the rules of spec/rules.hpp.
[[nodiscard]] constexpr std::int64_t tensor_count(const spec& s) noexcept {
  const experts_spec& e = s.experts;
  const int attention = detail::attention_tensors(s);
  const int ffn = s.ffn == ffn_kind::swiglu ? 3 : 2;
  const int norm = s.norm_bias ? 2 : 1;
  const std::int64_t routed_layers = s.layers - s.dense_layers;
  const std::int64_t copies = span_of(s).count == 0 ? 0 : std::int64_t{attention_copies(s)} * span_of(s).count;
  const std::int64_t experts = routed_layers == 0 ? 0 : std::int64_t{e.stored} + (e.shared_hidden > 0 ? 1 : 0);
  const std::int64_t routed = 1 + (e.router_bias ? 1 : 0) + (e.balance_bias ? 1 : 0) + (e.shared_gate ? 1 : 0) +
                              experts * ffn * (e.bias ? 2 : 1);
  std::int64_t of_visits = 0;
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const visit_parameters v = parameters_of_visit(s, visit_list::plan_of(s.loop.visits, i));
    of_visits += std::int64_t{visit_list::length_of(s.loop.visits, i)} *
                 ((v.coefficient > 0) + (v.encoder > 0) + (v.writeback > 0) + (v.projections > 0 ? 2 : 0));
  }
  const std::int64_t outside = of_visits + 1 + norm + (s.positions == position_kind::learned ? 1 : 0) +
                               (s.tied_head ? 0 : 1) + (s.head_bias ? 1 : 0) + (s.exit_gate ? 2 : 0);
  return outside + (attention + std::int64_t{s.norms_per_layer} * norm) * s.layers + attention * copies +
         routed * routed_layers + std::int64_t{s.dense_layers} * ffn * (s.dense_bias ? 2 : 1);
}

}  // namespace smelt
