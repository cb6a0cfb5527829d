// Which arrays does the way into attention read and write? Weights, what is saved, and queries, keys and values.
#pragma once

#include <smelt/core/view.hpp>
#include <span>
#include <type_traits>

namespace smelt {

/// Weights in front of attention, or their gradients. The norms of queries and keys are empty without QK-norm, [d] for
/// one of each head, and as wide as all heads together for one over the full width.
template <class T>
struct attention_input_weights {
  std::span<T> norm;     ///< [H]
  matrix_view<T> query;  ///< [heads * d, H]
  matrix_view<T> key;    ///< [kv_heads * d, H]
  matrix_view<T> value;  ///< [kv_heads * d, H]
  std::span<T> query_norm;
  std::span<T> key_norm;
};

/// What the forward pass saves for the backward pass. What belongs to QK-norm is empty without it.
template <class T>
struct attention_input_saved {
  std::span<T> inv_rms;        ///< [T] of the input
  matrix_view<T> raw_query;    ///< [T, heads * d] before the norm
  matrix_view<T> raw_key;      ///< [T, kv_heads * d] before the norm
  std::span<T> query_inv_rms;  ///< [T * heads] of each head, or [T]
  std::span<T> key_inv_rms;    ///< [T * kv_heads] of each head, or [T]

  constexpr operator attention_input_saved<const T>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return {inv_rms, raw_query, raw_key, query_inv_rms, key_inv_rms};
  }
};

/// Queries, keys and values of every token, or their gradients.
template <class T>
struct query_key_value {
  matrix_view<T> query;  ///< [T, heads * d]
  matrix_view<T> key;    ///< [T, kv_heads * d]
  matrix_view<T> value;  ///< [T, kv_heads * d]

  constexpr operator query_key_value<const T>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return {query, key, value};
  }
};

}  // namespace smelt
