// How long is a vector? Its Euclidean norm, without overflow on the way.

namespace smelt::cpu_ops::SMELT_SET {

/// sqrt(sum of squares), in double, where the square of a float neither overflows nor vanishes. A NaN gives NaN,
/// otherwise an infinity gives infinity.
[[nodiscard]] inline double norm(context& c, std::span<const float> x) {
  const auto size = static_cast<std::int64_t>(x.size());
  const std::int64_t tasks = (size + policy::flat_elements - 1) / policy::flat_elements;
  const std::span<double> partial = c.shared().take<double>(tasks);
  c.for_chunks(size, policy::flat_elements, [&](std::int64_t first, std::int64_t last) {
    constexpr std::int64_t width = 16;  // independent sums, which the compiler makes vectors of
    double sums[width] = {};
    std::int64_t i = first;
    for (; i + width <= last; i += width) {
      for (std::int64_t j = 0; j < width; ++j) sums[j] += double(x[i + j]) * double(x[i + j]);
    }
    for (; i < last; ++i) sums[0] += double(x[i]) * double(x[i]);
    double total = 0;
    for (const double s : sums) total += s;
    partial[first / policy::flat_elements] = total;
  });
  double total = 0;
  for (const double p : partial) total += p;
  return std::sqrt(total);
}

}  // namespace smelt::cpu_ops::SMELT_SET
