// Which kernel shapes does a spec ask for?
#pragma once

#include <smelt/kernels/shapes.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Width of all query heads together.
[[nodiscard]] constexpr int query_width(const spec& s) noexcept {
  return s.attention.heads * s.attention.head_dim;
}
/// Width of all key (or value) heads together.
[[nodiscard]] constexpr int kv_width(const spec& s) noexcept {
  return s.attention.kv_heads * s.attention.head_dim;
}

/// The shapes that a model of the spec calls its backend's ops with, each named after what is computed. Those with
/// weights read the leading parts of what is stored for `whole`: the spec itself, but for visits that run on parts.
namespace shapes {

[[nodiscard]] constexpr norm_shape norm(const spec& s) noexcept {
  return {s.width, s.norm_eps};
}
[[nodiscard]] constexpr attention_input_shape attention_input(const spec& s, const spec& whole) noexcept {
  const attention_spec& a = s.attention;
  return {s.width, a.heads, a.kv_heads, a.head_dim, a.norm, s.norm_eps, a.rotary_base, whole.width};
}
[[nodiscard]] constexpr linear_shape output(const spec& s, const spec& whole) noexcept {
  return {query_width(s), s.width, query_width(whole), whole.width};
}
[[nodiscard]] constexpr attention_shape attention(const spec& s) noexcept {
  return {s.attention.heads, s.attention.kv_heads, s.attention.head_dim};
}
[[nodiscard]] constexpr linear_shape router_logits(const spec& s, const spec& whole) noexcept {
  return {s.width, s.experts.stored, whole.width, whole.experts.stored};
}
[[nodiscard]] constexpr router_shape router(const spec& s) noexcept {
  return {s.experts.stored, s.experts.active, s.experts.score, s.experts.renormalise};
}
[[nodiscard]] constexpr experts_shape experts(const spec& s, const spec& whole) noexcept {
  return {s.experts.stored, s.experts.active, s.width, s.experts.hidden, whole.width, whole.experts.hidden};
}
/// The shared expert and the dense feed-forward are one expert that every token visits.
[[nodiscard]] constexpr experts_shape shared_expert(const spec& s, const spec& whole) noexcept {
  return {1, 1, s.width, s.experts.shared_hidden, whole.width, whole.experts.shared_hidden};
}
[[nodiscard]] constexpr experts_shape dense(const spec& s, const spec& whole) noexcept {
  return {1, 1, s.width, s.dense_hidden, whole.width, whole.dense_hidden};
}
/// The logits of the vocabulary alone, where the loss is not asked for.
[[nodiscard]] constexpr linear_shape logits(const spec& s) noexcept {
  return {s.width, s.vocab};
}
[[nodiscard]] constexpr head_shape head(const spec& s) noexcept {
  return {s.width, s.vocab};
}

}  // namespace shapes
}  // namespace smelt
