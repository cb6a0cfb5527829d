// How many bytes of keys and values does a sequence keep? Every (layer, visit) pair its own.
#pragma once

#include <cstdint>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/layer_groups.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt {

/// Bytes of the KV cache.
struct kv_cache_size {
  int bytes_per_element = 0;
  std::int64_t context = 0;  ///< tokens of the sequence
  std::int64_t bytes_per_token =
      0;  ///< growth by one token before any window is full, a latent visit's share rounded down
  std::int64_t bytes_at_context = 0;  ///< held after `context` tokens: windows cap, latent visits hold floor(T / c)
};

/// Elements that one executed layer keeps for one of its positions: keys and values, or the latent with its rotary key.
[[nodiscard]] constexpr std::int64_t kv_elements_per_position(const spec& s) noexcept {
  using detail::count;
  const attention_spec& a = s.attention;
  if (has_latent_attention(s)) return std::int64_t{a.latent.kv_rank} + a.latent.rope_dim;
  return (count(2) * a.kv_heads * a.head_dim).value;
}

/// Positions that an executed layer keeps after `tokens` tokens: a latent visit of divisor c has floor(tokens / c), a
/// window w keeps the last w.
[[nodiscard]] constexpr std::int64_t kv_positions(std::int64_t tokens, int length_divisor, int window) noexcept {
  const std::int64_t positions = tokens / length_divisor;
  return window > 0 && window < positions ? window : positions;
}

/// The KV cache of `s` for sequences of `tokens` with `bytes_per_element` bytes (2 is bf16). Precondition: `s`
/// satisfies the rules of spec/rules.hpp.
[[nodiscard]] constexpr kv_cache_size kv_cache(const spec& s, int bytes_per_element, std::int64_t tokens) noexcept {
  using detail::count;
  const count position = count(kv_elements_per_position(s)) * bytes_per_element;
  count per_token, held;
  for_each_layer_group(s, [&](const layer_group& g) {
    per_token += position * g.layers / g.length_divisor;
    held += position * g.layers * kv_positions(tokens, g.length_divisor, g.window);
  });
  return {bytes_per_element, tokens, per_token.value, held.value};
}

/// The same for sequences of the spec's own context.
[[nodiscard]] constexpr kv_cache_size kv_cache(const spec& s, int bytes_per_element = 2) noexcept {
  return kv_cache(s, bytes_per_element, s.context);
}

}  // namespace smelt
