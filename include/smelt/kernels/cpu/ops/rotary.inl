// How does a query or key know its position? Pairs (i, i + d/2) of a head turn by an angle proportional to it.

namespace smelt::cpu_ops::SMELT_SET {

namespace detail {

inline void rotate(context& c, const char* op, const rotary_shape& s, matrix_view<float> x,
            std::span<const std::int32_t> positions, float direction) {
  check_shape(op, "x", x, x.rows, std::int64_t{s.heads} * s.head_dim);
  check_size(op, "positions", positions, x.rows);
  if (s.head_dim % 2 != 0) {
    throw error(errc::invalid_argument,
                std::string(op) + ": head_dim is " + std::to_string(s.head_dim) + ", needs an even number");
  }
  if (x.size() == 0) return;
  const auto [least, greatest] = std::minmax_element(positions.begin(), positions.end());
  if (*least < 0) {
    throw error(errc::invalid_argument, std::string(op) + ": positions[" + std::to_string(least - positions.begin()) +
                                            "] is " + std::to_string(*least) + ", needs at least 0");
  }
  const rotary_table& table = c.rotary().get(s, std::int64_t{*greatest} + 1);
  const std::int64_t half = s.head_dim / 2;
  c.for_chunks(x.rows, (std::max)(policy::row_elements / x.cols, std::int64_t{1}),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const float* cosines = table.at(positions[t]);
                   const float* sines = cosines + half;
                   for (std::int64_t head = 0; head < s.heads; ++head) {
                     float* low = x.data + t * x.cols + head * s.head_dim;
                     float* high = low + half;
                     for_vectors(half, [&](auto get, auto put) {
                       const floats a = get(low);
                       const floats b = get(high);
                       const floats cosine = get(cosines);
                       const floats sine = get(sines) * direction;
                       put(low, a * cosine - b * sine);
                       put(high, b * cosine + a * sine);
                     });
                   }
                 }
               });
}

}  // namespace detail

/// Rotates x[T, heads * d] in place: pair i of every head by positions[t] * base^(-2i/d). Throws invalid_argument for a
/// negative position. The angles of every position up to the greatest are kept: 4 * d bytes for each.
template <ShapeOf<rotary_shape> Shape>
void rotary(context& c, Shape shape, matrix_view<float> x, std::span<const std::int32_t> positions) {
  const rotary_shape s = shape;
  detail::rotate(c, "rotary", s, x, positions, 1.0F);
}

/// Rotates a gradient back, in place.
template <ShapeOf<rotary_shape> Shape>
void rotary_backward(context& c, Shape shape, matrix_view<float> dx,
                     std::span<const std::int32_t> positions) {
  const rotary_shape s = shape;
  detail::rotate(c, "rotary_backward", s, dx, positions, -1.0F);
}

}  // namespace smelt::cpu_ops::SMELT_SET
