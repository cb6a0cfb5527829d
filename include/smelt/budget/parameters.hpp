// How many parameters does a spec have? In total, active for a token, and by component.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>

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
  std::int64_t tensors = 0;                     ///< named tensors of a file with unique weights, one an expert matrix

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

  std::int64_t active_experts = 0;  ///< of `experts`, those that one token visits

  // The looped-model papers' accounting: matrices only, no embeddings, no head.
  std::int64_t matrices = 0;         ///< N: attention, router, every expert
  std::int64_t matrices_active = 0;  ///< N_act: attention, router, k experts; one traversal of the physical layers
  std::int64_t matrices_loop = 0;    ///< N_loop: the part of N_act inside the looped span; 0 without a loop
};

namespace detail {

/// Elements of one feed-forward's matrices: three for SwiGLU, two for GELU.
[[nodiscard]] constexpr count ffn_matrices(const spec& s, int hidden) noexcept {
  return count(s.ffn == ffn_kind::swiglu ? 3 : 2) * s.width * hidden;
}
/// Elements of the biases of one feed-forward's matrices.
[[nodiscard]] constexpr count ffn_biases(const spec& s, int hidden) noexcept {
  return count(s.ffn == ffn_kind::swiglu ? 2 : 1) * hidden + s.width;
}
[[nodiscard]] constexpr count attention_matrices(const spec& s) noexcept {
  const attention_spec& a = s.attention;
  const count width = s.width;
  const count heads = a.heads;
  if (!has_latent_attention(s)) return width * a.head_dim * (count(2) * a.heads + count(2) * a.kv_heads);
  const latent_attention_spec& l = a.latent;
  const count query_width = heads * (count(l.nope_dim) + l.rope_dim);
  const count query = l.q_rank > 0 ? width * l.q_rank + query_width * l.q_rank : width * query_width;
  const count key_value =
      width * (count(l.kv_rank) + l.rope_dim) + count(l.kv_rank) * heads * (count(l.nope_dim) + l.value_dim);
  return query + key_value + heads * l.value_dim * width;
}
[[nodiscard]] constexpr count attention_vectors(const spec& s) noexcept {
  const attention_spec& a = s.attention;
  count n = a.sinks ? a.heads : 0;
  if (a.o_bias) n += s.width;
  if (has_latent_attention(s)) return n + a.latent.kv_rank + a.latent.q_rank;
  const count query = count(a.heads) * a.head_dim;
  const count key = count(a.kv_heads) * a.head_dim;
  if (a.qkv_bias) n += query + key + key;
  if (a.norm == qk_norm::per_head) n += count(2) * a.head_dim;
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

}  // namespace detail

/// Parameters of the pieces of one layer of `s`. Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr layer_parameters parameters_of_layer(const spec& s) noexcept {
  using detail::count;
  const experts_spec& e = s.experts;
  layer_parameters p;
  p.attention_matrices = detail::attention_matrices(s).value;
  p.attention_vectors = detail::attention_vectors(s).value;
  p.norm_vectors = (count(s.norm_bias ? 2 : 1) * s.norms_per_layer * s.width).value;
  if (s.dense_layers > 0) {
    p.dense_matrices = detail::ffn_matrices(s, s.dense_hidden).value;
    if (s.dense_bias) p.dense_vectors = detail::ffn_biases(s, s.dense_hidden).value;
  }
  if (s.dense_layers == s.layers) return p;
  p.router_matrices = (count(s.width) * e.stored).value;
  p.router_vectors = (count(e.router_bias ? e.stored : 0) + (e.balance_bias ? e.stored : 0)).value;
  p.expert_matrices = detail::ffn_matrices(s, e.hidden).value;
  if (e.bias) p.expert_vectors = detail::ffn_biases(s, e.hidden).value;
  if (e.shared_hidden > 0) {
    p.shared_matrices = (detail::ffn_matrices(s, e.shared_hidden) + (e.shared_gate ? s.width : 0)).value;
    if (e.bias) p.shared_vectors = detail::ffn_biases(s, e.shared_hidden).value;
  }
  return p;
}

/// Copies of the looped span's attention beyond the first. The visits that share keep one copy together; every visit
/// with attention of its own keeps another.
[[nodiscard]] constexpr int extra_attention_copies(const spec& s) noexcept {
  const int visits = span_of(s).count == 0 ? 0 : s.loop.visits.count;
  int own = 0;
  for (int v = 0; v < visits; ++v) own += s.loop.visits[v].own_attention;
  return own > 0 && own == visits ? own - 1 : own;
}

/// The parameters of `s`. Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr parameter_count parameters(const spec& s) noexcept {
  using detail::count;
  const layer_parameters one = parameters_of_layer(s);
  const experts_spec& e = s.experts;
  const loop_span span = span_of(s);
  const std::int64_t dense_layers = s.dense_layers;
  const std::int64_t routed_layers = s.layers - s.dense_layers;
  const std::int64_t copies = extra_attention_copies(s) * std::int64_t{span.count};
  const count table = count(table_rows(s)) * s.width;
  const count expert = count(one.expert_matrices) + one.expert_vectors;
  const count attention_matrices = one.attention_matrices;

  parameter_count p;
  p.embedding = table.value;
  p.positions = s.positions == position_kind::learned ? (count(s.context) * s.width).value : 0;
  p.head = (count(s.tied_head ? 0 : table) + (s.head_bias ? table_rows(s) : 0)).value;
  p.attention = ((attention_matrices + one.attention_vectors) * s.layers).value;
  p.own_attention = ((attention_matrices + one.attention_vectors) * copies).value;
  p.router = ((count(one.router_matrices) + one.router_vectors) * routed_layers).value;
  p.experts = routed_layers == 0 ? 0 : (expert * routed_layers * e.stored).value;
  p.active_experts = routed_layers == 0 ? 0 : (expert * routed_layers * e.active).value;
  p.shared_experts = ((count(one.shared_matrices) + one.shared_vectors) * routed_layers).value;
  p.dense_ffn = ((count(one.dense_matrices) + one.dense_vectors) * dense_layers).value;
  p.norms = (count(one.norm_vectors) * s.layers + count(s.norm_bias ? 2 : 1) * s.width).value;
  p.exit_gate = s.exit_gate ? (count(s.width) + 1).value : 0;

  const count body = count(p.attention) + p.own_attention + p.router + p.shared_experts + p.dense_ffn + p.norms +
                     p.exit_gate;  // without embeddings, head and routed experts
  const count outside = count(p.embedding) + p.positions + p.head;
  // Visits with attention of their own are all part of one token's path.
  p.non_embedding = (body + p.experts).value;
  p.non_expert = (body + outside).value;
  p.total = (body + outside + p.experts).value;
  p.active = (body + outside + p.active_experts).value;
  p.active_without_input_table =
      (body + p.positions + p.head + (s.tied_head ? p.embedding : 0) + p.active_experts).value;
  p.stored = (count(p.total) + (s.tied_head ? table : count(0))).value;

  // A layer's matrices for one traversal, by kind of layer.
  const count routed = attention_matrices + one.router_matrices + one.shared_matrices;
  const count active_matrices = routed + count(one.expert_matrices) * e.active;
  const count dense = attention_matrices + one.dense_matrices;
  const int span_dense = s.dense_layers > span.first ? s.dense_layers - span.first : 0;
  const std::int64_t dense_in_span = span_dense < span.count ? span_dense : span.count;
  p.matrices =
      (routed * routed_layers + count(one.expert_matrices) * routed_layers * (routed_layers == 0 ? 0 : e.stored) +
       dense * dense_layers + attention_matrices * copies)
          .value;
  p.matrices_active = (active_matrices * routed_layers + dense * dense_layers).value;
  p.matrices_loop = (active_matrices * (span.count - dense_in_span) + dense * dense_in_span).value;

  const int ffn_tensors = s.ffn == ffn_kind::swiglu ? 3 : 2;
  const int norm_tensors = s.norm_bias ? 2 : 1;
  const int layer_tensors = detail::attention_tensors(s) + s.norms_per_layer * norm_tensors;
  const int shared_tensors = e.shared_hidden > 0 ? ffn_tensors * (e.bias ? 2 : 1) + (e.shared_gate ? 1 : 0) : 0;
  const int router_tensors = 1 + (e.router_bias ? 1 : 0) + (e.balance_bias ? 1 : 0);
  p.tensors = (count(layer_tensors) * s.layers + count(detail::attention_tensors(s)) * copies +
               count(routed_layers) * (count(router_tensors) + shared_tensors +
                                       count(ffn_tensors) * (e.bias ? 2 : 1) * (routed_layers == 0 ? 0 : e.stored)) +
               count(dense_layers) * ffn_tensors * (s.dense_bias ? 2 : 1) + norm_tensors + 1 +
               (s.positions == position_kind::learned ? 1 : 0) + (s.tied_head ? 0 : 1) + (s.head_bias ? 1 : 0) +
               (s.exit_gate ? 2 : 0))
                  .value;
  return p;
}

/// N_unroll(R) = N_act + (R - 1) N_loop: matrices that a token meets when the looped span is visited `visits` times.
/// Training costs 6 N_unroll D FLOPs without attention scores, inference 2 N_unroll a token.
/// Precondition: visits >= 1.
[[nodiscard]] constexpr std::int64_t unrolled_parameters(const parameter_count& p, int visits) noexcept {
  return (detail::count(p.matrices_active) + detail::count(p.matrices_loop) * (visits - 1)).value;
}

}  // namespace smelt
