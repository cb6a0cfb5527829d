// How many bytes of keys and values does a sequence keep? Every (layer, visit) pair its own.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/layer_groups.hpp>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

/// Bytes of the KV cache.
struct kv_cache_size {
  int bytes_per_element = 0;
  std::int64_t context = 0;  ///< tokens of the sequence
  std::int64_t bytes_per_token =
      0;  ///< growth by one token before any window is full, a latent visit's share rounded down
  std::int64_t bytes_at_context = 0;  ///< held after `context` tokens: windows cap, latent visits hold floor(T / c)
};

namespace detail {

/// Elements that one executed layer keeps for one of its positions: keys and values, or the latent with its rotary key.
template <class Count>
[[nodiscard]] constexpr Count kv_elements_in(const spec& s) noexcept {
  const attention_spec& a = s.attention;
  if (has_latent_attention(s)) return Count(a.latent.kv_rank) + a.latent.rope_dim;
  return Count(2) * a.kv_heads * a.head_dim;
}

}  // namespace detail

/// Positions that an executed layer keeps after `tokens` tokens: a latent visit of divisor c has floor(tokens / c), a
/// window w keeps the last w.
[[nodiscard]] constexpr std::int64_t kv_positions(std::int64_t tokens, int length_divisor, int window) noexcept {
  const std::int64_t positions = tokens / length_divisor;
  return window > 0 && window < positions ? window : positions;
}

namespace detail {

template <class Count>
[[nodiscard]] constexpr kv_cache_size kv_cache_in(const spec& s, int bytes_per_element, std::int64_t tokens) noexcept {
  const Count position = kv_elements_in<Count>(s) * bytes_per_element;
  Count per_token = 0;
  Count held = 0;
  const layer_groups groups(s);
  for (int i = 0; i < groups.size(); ++i) {
    const layer_group g = groups[i];
    if (g.layers == 0) continue;
    const Count layers = position * g.layers;
    per_token += layers / g.length_divisor;
    held += layers * kv_positions(tokens, g.length_divisor, g.window);
  }
  return {bytes_per_element, tokens, std::int64_t(per_token), std::int64_t(held)};
}

}  // namespace detail

/// The KV cache of `s` for sequences of `tokens` with `bytes_per_element` bytes (2 is bf16). Precondition: `s`
/// satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr kv_cache_size kv_cache(const spec& s, int bytes_per_element, std::int64_t tokens) noexcept {
  if (std::is_constant_evaluated()) return detail::kv_cache_in<detail::unchecked_count>(s, bytes_per_element, tokens);
  return detail::kv_cache_in<detail::checked_count>(s, bytes_per_element, tokens);
}

/// The same for sequences of the spec's own context.
[[nodiscard]] constexpr kv_cache_size kv_cache(const spec& s, int bytes_per_element = 2) noexcept {
  return kv_cache(s, bytes_per_element, s.context);
}

}  // namespace smelt
