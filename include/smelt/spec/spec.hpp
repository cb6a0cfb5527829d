// What is an architecture? One aggregate of numbers, usable as a template argument and as a run-time value.
#pragma once

#include <smelt/spec/layer_set.hpp>
#include <smelt/spec/visit.hpp>

namespace smelt {

/// Normalisation of queries and keys before the rotary embedding.
enum class qk_norm : int {
  none,
  per_head,    ///< one gain of head_dim, shared by the heads (Qwen3)
  full_width,  ///< one gain over all heads x head_dim (OLMoE)
};

/// How positions enter the model.
enum class position_kind : int {
  rotary,   ///< rotary embedding of queries and keys, half-split pairs
  learned,  ///< a table of context x width added to the token embedding (GPT-2)
};

/// The feed-forward function of experts, shared expert and dense layers.
enum class ffn_kind : int {
  swiglu,  ///< down(silu(gate x) * up x): three matrices
  gelu,    ///< down(gelu(up x)): two matrices (GPT-2)
};

/// How router logits become scores.
enum class score_function : int { softmax, sigmoid };

/// Multi-head latent attention (DeepSeek-V2): used instead of grouped-query attention when kv_rank > 0.
struct latent_attention_spec {
  int kv_rank = 0;    ///< width of the compressed key/value; 0 is grouped-query attention
  int q_rank = 0;     ///< width of the compressed query; 0 is a direct projection
  int nope_dim = 0;   ///< head size of queries and keys without position
  int rope_dim = 0;   ///< head size of queries and keys with rotary position; its key is shared by the heads
  int value_dim = 0;  ///< head size of values

  friend constexpr bool operator==(const latent_attention_spec&, const latent_attention_spec&) = default;
};

/// Causal grouped-query attention.
struct attention_spec {
  int heads = 1;                   ///< query heads
  int kv_heads = 1;                ///< key/value heads; divides `heads`
  int head_dim = 0;                ///< size of one head; heads * head_dim need not equal the width
  bool qkv_bias = false;           ///< biases of the query, key and value projections
  bool o_bias = false;             ///< bias of the output projection
  qk_norm norm = qk_norm::none;    ///< normalisation of queries and keys
  bool sinks = false;              ///< one learned logit a head that takes attention mass away
  int window = 0;                  ///< attended positions, the token itself included; 0 is all
  layer_set global_layers{};       ///< the layers that attend to every position despite the window
  int rotary_base = 10'000;        ///< base of the rotary frequencies
  latent_attention_spec latent{};  ///< multi-head latent attention, for budgets

  friend constexpr bool operator==(const attention_spec&, const attention_spec&) = default;
};

/// The mixture of experts that is the feed-forward part of every layer behind the leading dense ones.
struct experts_spec {
  int stored = 0;                                  ///< routed experts E
  int active = 0;                                  ///< routed experts a token visits, top-k
  int hidden = 0;                                  ///< hidden width of ONE of the gate/up matrices
  int shared_hidden = 0;                           ///< hidden width of the always-active shared expert; 0 is none
  bool shared_gate = false;                        ///< the shared expert is scaled by sigmoid(w . x), w of size width
  bool bias = false;                               ///< biases of every expert matrix
  bool router_bias = false;                        ///< bias of the router's logits
  bool balance_bias = false;                       ///< loss-free balancing: a bias per expert, for selection only
  score_function score = score_function::softmax;  ///< how logits become scores
  bool renormalise = false;                        ///< the k selected weights are divided by their sum

  friend constexpr bool operator==(const experts_spec&, const experts_spec&) = default;
};

/// A decoder-only language model: what it is, not how it is trained. Widths and counts are numbers of elements.
struct spec {
  int vocab = 0;                                    ///< tokens of the tokenizer
  int padded_vocab = 0;                             ///< rows of the embedding and head tables; 0 is `vocab`
  int context = 0;                                  ///< longest sequence, in tokens
  int width = 0;                                    ///< residual stream H
  int layers = 0;                                   ///< physical layers L
  int dense_layers = 0;                             ///< leading layers with one dense feed-forward instead of experts
  int dense_hidden = 0;                             ///< hidden width of ONE of the dense gate/up matrices
  bool dense_bias = false;                          ///< biases of the dense feed-forward matrices
  ffn_kind ffn = ffn_kind::swiglu;                  ///< of dense layers, experts and shared expert
  position_kind positions = position_kind::rotary;  ///< how positions enter
  attention_spec attention{};
  experts_spec experts{};
  int norms_per_layer = 2;  ///< 2 (pre-norm) or 4 (also behind each sublayer)
  bool norm_bias = false;   ///< norms have a bias beside their gain
  double norm_eps = 1e-5;   ///< added to the mean square inside every norm
  bool tied_head = false;   ///< the head reuses the embedding table
  bool head_bias = false;   ///< bias of the output head
  loop_spec loop{};         ///< the looped span and its visits
  bool exit_gate = false;   ///< a linear width -> 1 with bias, evaluated behind every visit

  friend constexpr bool operator==(const spec&, const spec&) = default;
};

/// Rows of the embedding and head tables.
[[nodiscard]] constexpr int table_rows(const spec& s) noexcept {
  return s.padded_vocab == 0 ? s.vocab : s.padded_vocab;
}

/// Whether layer `i` routes to experts (otherwise it has the dense feed-forward).
[[nodiscard]] constexpr bool has_experts(const spec& s, int i) noexcept {
  return i >= s.dense_layers;
}
[[nodiscard]] constexpr bool has_routed_layers(const spec& s) noexcept {
  return s.dense_layers < s.layers;
}
[[nodiscard]] constexpr bool has_dense_layers(const spec& s) noexcept {
  return s.dense_layers > 0;
}
/// Whether every layer with routed experts has one more that all tokens visit.
[[nodiscard]] constexpr bool has_shared_expert(const spec& s) noexcept {
  return s.experts.shared_hidden > 0;
}

/// Attended positions of layer `i` at most, the token itself included; 0 is no limit.
[[nodiscard]] constexpr int window_of(const spec& s, int i) noexcept {
  return s.attention.global_layers[i] ? 0 : s.attention.window;
}

/// Channels of the residual stream that a visit by `plan` runs on.
[[nodiscard]] constexpr int width_of(const spec& s, const visit_plan& plan) noexcept {
  return part_of(s.width, plan.stream);
}
/// Routed experts that a token visits in a visit by `plan`.
[[nodiscard]] constexpr int active_of(const spec& s, const visit_plan& plan) noexcept {
  return plan.active == 0 ? s.experts.active : plan.active;
}
/// Hidden units of one routed expert that run in a visit by `plan`.
[[nodiscard]] constexpr int hidden_of(const spec& s, const visit_plan& plan) noexcept {
  return part_of(s.experts.hidden, plan.expert_hidden);
}

/// Whether attention is multi-head latent attention.
[[nodiscard]] constexpr bool has_latent_attention(const spec& s) noexcept {
  return s.attention.latent.kv_rank > 0;
}

}  // namespace smelt
