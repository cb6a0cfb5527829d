// How much memory do training and inference hold? Weights, gradients, moments, kept activations, KV cache.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/layer_groups.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

/// What one executed layer keeps for its backward pass.
struct activation_elements {
  std::int64_t reals = 0;    ///< floating-point elements
  std::int64_t indices = 0;  ///< expert ids and the grouping of tokens by expert
};

/// How a model is trained, as far as memory goes. Sizes in bytes.
struct training_plan {
  std::int64_t tokens = 0;   ///< of one micro-batch, in sequences of the spec's context; 0 is one sequence
  int weight_bytes = 4;      ///< of a weight
  int gradient_bytes = 4;    ///< of a gradient
  int moment_bytes = 4;      ///< of an optimiser moment
  int moments = 2;           ///< moments a parameter: 2 for AdamW
  int activation_bytes = 4;  ///< of a kept activation
  int index_bytes = 4;       ///< of an expert id
  bool recompute = false;    ///< of executed layers only the input and load are kept, and one layer's rest at a time

  friend constexpr bool operator==(const training_plan&, const training_plan&) = default;
};

/// Bytes held in training.
struct training_memory {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t activations = 0;  ///< records of every executed layer and visit of one micro-batch; no scratch
  std::int64_t total = 0;
};

/// Bytes held in inference.
struct inference_memory {
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::int64_t total = 0;
};

namespace detail {

/// Positions of a micro-batch of `tokens` tokens in a visit of divisor c: floor(T / c) a sequence.
[[nodiscard]] constexpr std::int64_t batch_positions(std::int64_t tokens, std::int64_t context,
                                                     std::int64_t divisor) noexcept {
  return divisor == 1 ? tokens : tokens / context * (context / divisor) + tokens % context / divisor;
}

/// A layer's record for `positions` positions: the residual stream before and between the sublayers and the normed
/// input of the second one, the root mean squares of both, query, key, value, attention output and its log-sum-exp,
/// router scores and selected weights, gate and up of every selected expert.
template <class Count>
[[nodiscard]] constexpr activation_elements activation_elements_in(const spec& s, const layer_group& g,
                                                                   std::int64_t positions) noexcept {
  const attention_spec& a = s.attention;
  const latent_attention_spec& l = a.latent;
  const bool latent = has_latent_attention(s);
  const Count heads = a.heads;
  const Count query = latent ? heads * (Count(l.nope_dim) + l.rope_dim) : heads * a.head_dim;
  const Count key = latent ? query : Count(a.kv_heads) * a.head_dim;
  const Count value = latent ? heads * l.value_dim : key;
  const Count attended = latent ? value : query;
  Count each = Count(3) * g.width + 2 + query + key + value + attended + heads;
  if (latent) each += Count(l.kv_rank) + l.rope_dim + l.q_rank;
  if (!latent && a.norm != qk_norm::none)
    each += query + key + (a.norm == qk_norm::per_head ? Count(a.heads) + a.kv_heads : Count(2));
  if (!g.experts) return {std::int64_t((each + Count(2) * s.dense_hidden) * positions), 0};
  const experts_spec& e = s.experts;
  each += Count(e.stored) + g.active + 1 + Count(2) * g.active * g.hidden + Count(2) * e.shared_hidden;
  return {std::int64_t(each * positions + e.stored),
          std::int64_t(Count(3) * g.active * positions + e.stored + 1)};  // ids, assignment, row; offsets
}

/// The record of a visit that runs on rows of its own: the residual stream before it, the latents before their
/// projection (when there are both), the output behind the last layer, the increments before and behind the projection.
template <class Count>
[[nodiscard]] constexpr Count visit_elements_in(const spec& s, const visit_plan& plan, std::int64_t tokens,
                                                std::int64_t positions) noexcept {
  if (is_plain(plan)) return 0;
  const bool narrow = is_narrow(plan);
  const Count latents = Count(positions) * s.width;
  Count n = Count(tokens) * s.width + Count(positions) * width_of(s, plan) * (narrow ? 2 : 1);
  if (plan.compression > 1) n += narrow ? latents * 2 : latents;
  return n;
}

template <class Count>
[[nodiscard]] constexpr training_memory training_memory_in(const spec& s, const training_plan& plan) noexcept {
  const Count parameters = parameters_in<Count>(s, layer_parameters_in<Count>(s)).total;
  const std::int64_t tokens = plan.tokens == 0 ? s.context : plan.tokens;
  const layer_groups groups(s);
  Count kept = 0;
  std::int64_t largest = 0;
  for (int i = 0; i < groups.size(); ++i) {
    const layer_group g = groups[i];
    if (g.layers == 0) continue;
    const std::int64_t positions = batch_positions(tokens, s.context, g.length_divisor);
    const activation_elements one = activation_elements_in<Count>(s, g, positions);
    const Count bytes = Count(one.reals) * plan.activation_bytes + Count(one.indices) * plan.index_bytes;
    const Count input = (Count(positions) * g.width + (g.experts ? s.experts.stored : 0)) * plan.activation_bytes;
    const std::int64_t rest = std::int64_t(bytes) - std::int64_t(input);
    if (rest > largest) largest = rest;
    kept += (plan.recompute ? input : bytes) * g.layers;
  }
  if (plan.recompute) kept += largest;
  for (int i = 0; i < s.loop.visits.runs(); ++i) {
    const visit_plan& visit = visit_list::plan_of(s.loop.visits, i);
    kept += visit_elements_in<Count>(s, visit, tokens, batch_positions(tokens, s.context, visit.compression)) *
            (std::int64_t{plan.activation_bytes} * visit_list::length_of(s.loop.visits, i));
  }
  const Count weights = parameters * plan.weight_bytes;
  const Count gradients = parameters * plan.gradient_bytes;
  const Count moments = parameters * plan.moments * plan.moment_bytes;
  return {std::int64_t(weights), std::int64_t(gradients), std::int64_t(moments), std::int64_t(kept),
          std::int64_t(weights + gradients + moments + kept)};
}

template <class Count>
[[nodiscard]] constexpr inference_memory inference_memory_in(const spec& s, std::int64_t tokens, int weight_bits,
                                                             int kv_bytes_per_element) noexcept {
  const Count parameters = parameters_in<Count>(s, layer_parameters_in<Count>(s)).total;
  const Count weights = (parameters * weight_bits + 7) / 8;
  const Count cache = kv_cache_in<Count>(s, kv_bytes_per_element, tokens).bytes_at_context;
  return {std::int64_t(weights), std::int64_t(cache), std::int64_t(weights + cache)};
}

}  // namespace detail

/// What one executed layer keeps for `positions` positions in a visit by `plan`; `experts` says whether it routes.
/// Precondition: `s` satisfies the rules of spec/rules.hpp, positions >= 0.
[[nodiscard]] constexpr activation_elements activations_of_layer(const spec& s, bool experts, std::int64_t positions,
                                                                 const visit_plan& plan = {}) noexcept {
  const layer_group layer{
      .experts = experts, .width = width_of(s, plan), .active = active_of(s, plan), .hidden = hidden_of(s, plan)};
  if (std::is_constant_evaluated()) return detail::activation_elements_in<detail::unchecked_count>(s, layer, positions);
  return detail::activation_elements_in<detail::checked_count>(s, layer, positions);
}

/// Floating-point elements that one visit by `plan` keeps beside the records of its layers, of a micro-batch of
/// `tokens` tokens that make `positions` positions of the visit: none when it runs on the residual stream itself.
/// Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr std::int64_t activations_of_visit(const spec& s, const visit_plan& plan, std::int64_t tokens,
                                                          std::int64_t positions) noexcept {
  if (std::is_constant_evaluated())
    return detail::visit_elements_in<detail::unchecked_count>(s, plan, tokens, positions);
  return std::int64_t(detail::visit_elements_in<detail::checked_count>(s, plan, tokens, positions));
}

/// Memory of training `s` by `plan`: the activations are those of the executed schedule, every visit its own.
/// Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr training_memory memory_of_training(const spec& s, const training_plan& plan = {}) noexcept {
  if (std::is_constant_evaluated()) return detail::training_memory_in<detail::unchecked_count>(s, plan);
  return detail::training_memory_in<detail::checked_count>(s, plan);
}

/// Memory of decoding one sequence of `tokens` with weights of `weight_bits` bits (16 is bf16, 4 is a quantised model
/// without its scales). Precondition: `s` satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr inference_memory memory_of_inference(const spec& s, std::int64_t tokens, int weight_bits = 16,
                                                             int kv_bytes_per_element = 2) noexcept {
  if (std::is_constant_evaluated())
    return detail::inference_memory_in<detail::unchecked_count>(s, tokens, weight_bits, kv_bytes_per_element);
  return detail::inference_memory_in<detail::checked_count>(s, tokens, weight_bits, kv_bytes_per_element);
}

}  // namespace smelt
