// Which numbers does a kernel's inner loop need? Narrow flat shapes, known to the compiler or only at run time.
#pragma once

#include <concepts>
#include <cstdint>
#include <smelt/spec/spec.hpp>
#include <smelt/spec/visit.hpp>

namespace smelt {

/// A value the compiler knows, as an empty object that converts to it: a kernel that takes `Shape shape` and starts
/// with `const attention_shape s = shape;` is specialised for `constant<attention_shape{...}>` and general otherwise.
template <auto Value>
struct constant {
  using value_type = decltype(Value);
  static constexpr value_type value = Value;
  constexpr operator value_type() const noexcept { return Value; }
};

/// A `T` or a `constant` of one.
template <class S, class T>
concept ShapeOf = std::convertible_to<S, T>;

/// A matrix product with weights [out, in]: the leading rows and columns of those that are stored.
struct linear_shape {
  int in = 0;
  int out = 0;
  int stored_in = 0;   ///< columns of the stored weights; 0: as many as are used
  int stored_out = 0;  ///< rows of the stored weights; 0: as many as are used
  friend constexpr bool operator==(const linear_shape&, const linear_shape&) = default;
};

/// Columns of the stored weights.
[[nodiscard]] constexpr int weight_cols(const linear_shape& s) noexcept {
  return s.stored_in == 0 ? s.in : s.stored_in;
}
/// Rows of the stored weights.
[[nodiscard]] constexpr int weight_rows(const linear_shape& s) noexcept {
  return s.stored_out == 0 ? s.out : s.stored_out;
}

/// RMSNorm over the last dimension.
struct norm_shape {
  int width = 0;
  double eps = 1e-5;
  friend constexpr bool operator==(const norm_shape&, const norm_shape&) = default;
};

/// Rotary embedding of `heads` heads, half-split pairs (i, i + head_dim / 2).
struct rotary_shape {
  int heads = 0;
  int head_dim = 0;
  int base = 10'000;
  friend constexpr bool operator==(const rotary_shape&, const rotary_shape&) = default;
};

/// What attention reads: the normed stream [T, width] projected to queries, keys and values, the first two of them
/// normed as `norm` says and turned by their positions.
struct attention_input_shape {
  int width = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  qk_norm norm = qk_norm::none;
  double eps = 1e-5;  ///< of all norms
  int rotary_base = 10'000;
  int stored_width = 0;  ///< columns of the stored weights, the leading ones of which are used; 0: all of them
  friend constexpr bool operator==(const attention_input_shape&, const attention_input_shape&) = default;
};

/// Width of all query heads together.
[[nodiscard]] constexpr int query_width(const attention_input_shape& s) noexcept {
  return s.heads * s.head_dim;
}
/// Width of all key (or value) heads together.
[[nodiscard]] constexpr int kv_width(const attention_input_shape& s) noexcept {
  return s.kv_heads * s.head_dim;
}
/// Columns of the stored weights.
[[nodiscard]] constexpr int weight_width(const attention_input_shape& s) noexcept {
  return s.stored_width == 0 ? s.width : s.stored_width;
}
/// Width over which queries are normed.
[[nodiscard]] constexpr int query_norm_width(const attention_input_shape& s) noexcept {
  return s.norm == qk_norm::full_width ? query_width(s) : s.head_dim;
}
/// Width over which keys are normed.
[[nodiscard]] constexpr int key_norm_width(const attention_input_shape& s) noexcept {
  return s.norm == qk_norm::full_width ? kv_width(s) : s.head_dim;
}

/// Causal grouped-query attention; scores are scaled by 1 / sqrt(head_dim).
struct attention_shape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  friend constexpr bool operator==(const attention_shape&, const attention_shape&) = default;
};

/// Router: scores over all experts, the top `active` of them, ties to the lower index.
struct router_shape {
  int experts = 0;
  int active = 0;
  score_function score = score_function::softmax;
  bool renormalise = false;
  friend constexpr bool operator==(const router_shape&, const router_shape&) = default;
};

/// SwiGLU experts. A dense feed-forward is one expert that every token visits with weight 1. Of every stored expert's
/// weights, gate and up [f, H] and down [H, f], the leading `hidden` of f and `width` of H are used.
struct experts_shape {
  int experts = 0;
  int active = 0;
  int width = 0;
  int hidden = 0;
  int stored_width = 0;   ///< H; 0: as many as are used
  int stored_hidden = 0;  ///< f; 0: as many as are used
  friend constexpr bool operator==(const experts_shape&, const experts_shape&) = default;
};

/// Width of the stored experts.
[[nodiscard]] constexpr int weight_width(const experts_shape& s) noexcept {
  return s.stored_width == 0 ? s.width : s.stored_width;
}
/// Hidden units of the stored experts.
[[nodiscard]] constexpr int weight_hidden(const experts_shape& s) noexcept {
  return s.stored_hidden == 0 ? s.hidden : s.stored_hidden;
}

/// Output head: `vocab` logits count; rows of the table behind them are padding and never enter the loss.
struct head_shape {
  int width = 0;
  int vocab = 0;
  friend constexpr bool operator==(const head_shape&, const head_shape&) = default;
};

/// How a compressed visit makes a latent of every `factor` tokens.
struct pool_shape {
  int width = 0;
  int factor = 1;
  encoder_kind encoder{};
  friend constexpr bool operator==(const pool_shape&, const pool_shape&) = default;
};

/// How a compressed visit gives what it did to a latent to `factor` tokens.
struct write_back_shape {
  int width = 0;
  int factor = 1;
  writeback_kind writeback{writeback_kind::scaled};
  friend constexpr bool operator==(const write_back_shape&, const write_back_shape&) = default;
};

}  // namespace smelt
