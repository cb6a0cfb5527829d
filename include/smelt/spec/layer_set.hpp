// Which layers? A set of layer indices that can be part of a template argument.
#pragma once

#include <cstdint>

namespace smelt {

/// The most physical layers an architecture may have.
inline constexpr int max_layers = 256;

/// A set of layer indices in [0, max_layers). Plain scalars, so that it can sit inside a template argument.
struct layer_set {
  std::uint64_t word0 = 0, word1 = 0, word2 = 0, word3 = 0;

  /// Whether layer `i` is in the set; false outside [0, max_layers).
  [[nodiscard]] constexpr bool operator[](int i) const noexcept {
    if (i < 0 || i >= max_layers) return false;
    const std::uint64_t word = i < 64 ? word0 : i < 128 ? word1 : i < 192 ? word2 : word3;
    return (word >> (i % 64) & 1u) != 0;
  }

  /// The same set with layer `i` added.
  [[nodiscard]] constexpr layer_set with(int i) const noexcept {
    layer_set r = *this;
    if (i < 0 || i >= max_layers) return r;
    (i < 64 ? r.word0 : i < 128 ? r.word1 : i < 192 ? r.word2 : r.word3) |= std::uint64_t{1} << (i % 64);
    return r;
  }

  /// Number of layers of the set below `layers`.
  [[nodiscard]] constexpr int count_below(int layers) const noexcept {
    int n = 0;
    for (int i = 0; i < layers; ++i) n += (*this)[i];
    return n;
  }

  /// Whether the set is empty.
  [[nodiscard]] constexpr bool empty() const noexcept { return (word0 | word1 | word2 | word3) == 0; }

  friend constexpr bool operator==(const layer_set&, const layer_set&) = default;
};

/// Layers first, first + period, first + 2 period, ... below max_layers. `every_layer(2)` is the even ones;
/// a period below 1 gives the empty set.
[[nodiscard]] constexpr layer_set every_layer(int period, int first = 0) noexcept {
  layer_set s;
  for (int i = first; period > 0 && i < max_layers; i += period) s = s.with(i);
  return s;
}

}  // namespace smelt
