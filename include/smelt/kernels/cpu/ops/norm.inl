// How long is a vector? Its Euclidean norm, without overflow on the way.

namespace smelt::cpu_ops::SMELT_SET {

/// sqrt(sum of squares), in double, where the square of a float neither overflows nor vanishes. A NaN gives NaN,
/// otherwise an infinity gives infinity.
[[nodiscard]] inline double norm(context& c, std::span<const float> x) {
  return std::sqrt(detail::sum_of_products(c, static_cast<std::int64_t>(x.size()),
                                           [&](std::int64_t i) { return double(x[i]) * double(x[i]); }));
}

}  // namespace smelt::cpu_ops::SMELT_SET
