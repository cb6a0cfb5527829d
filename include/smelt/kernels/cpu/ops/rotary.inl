// How does a query or key know its position? Pairs (i, i + d/2) of a head turn by an angle proportional to it.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

// One token's heads, each turned by the angles of its position (cosines, then sines: rotary_table::at), or back for a
// direction of -1. `to` may be `from`.
[[gnu::always_inline]] inline void rotate_row(const float* from, const float* cosines, std::int64_t heads,
                                              std::int64_t head_dim, float direction, float* to) noexcept {
  const std::int64_t half = head_dim / 2;
  const float* sines = cosines + half;
  for (std::int64_t head = 0; head < heads; ++head, from += head_dim, to += head_dim) {
    for_vectors(half, [&](auto get, auto put) {
      const floats a = get(from);
      const floats b = get(from + half);
      const floats cosine = get(cosines);
      const floats sine = get(sines) * direction;
      put(to, a * cosine - b * sine);
      put(to + half, b * cosine + a * sine);
    });
  }
}

}  // namespace detail

}  // namespace smelt::cpu_ops::SMELT_SET
